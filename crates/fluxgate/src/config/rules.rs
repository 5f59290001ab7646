//! Where the rules come from.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;

use super::redact;
use super::section::Section;
use super::store::Store;
use super::tree;
use super::url::HttpUrl;

/// The default of `poll` for files and Redis.
pub const DEFAULT_POLL: Duration = Duration::from_secs(5);
/// The default of `poll` for rules from HTTP.
const HTTP_POLL: Duration = Duration::from_secs(10);
/// Where rules may come from.
const SOURCES: [&str; 3] = ["dir", "redis", "http"];

/// Where the rules come from.
#[derive(Debug)]
pub enum Rules {
    /// From the config file itself.
    Inline(RuleSets),
    /// From all `*.yaml` files of a directory.
    Directory {
        /// The directory.
        path: PathBuf,
        /// How often the directory is checked for changes.
        poll: Duration,
    },
    /// From the Redis of the store.
    Redis {
        /// How often Redis is checked for changes.
        poll: Duration,
    },
    /// From a rule file on an HTTP server.
    Http(HttpRulesConfig),
}

/// A rule file on an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpRulesConfig {
    /// The address of the file.
    pub url: HttpUrl,
    /// A file with the token that is sent.
    pub token_file: Option<PathBuf>,
    /// The certificate authorities to trust instead of those of the system.
    pub ca: Option<PathBuf>,
    /// The file that keeps the last good rules.
    pub cache_file: Option<PathBuf>,
    /// How often the server is asked for changes.
    pub poll: Duration,
}

impl Rules {
    pub(super) fn read(root: &mut Section<'_, '_>, options: RuleOptions, store: &Store) -> Self {
        // Both are read although they exclude each other: all faults are reported.
        let rule_sets = root.get("rule_sets");
        let inline = rule_sets.map(|sets| RuleSets::read(sets, options, root.faults));
        let inline = Self::Inline(inline.unwrap_or_default());
        let Some(from) = root.get("rules_from") else {
            root.show("rule_sets", rule_sets.map(redact::api_keys));
            return inline;
        };
        if rule_sets.is_some() {
            root.fault(from, "`rule_sets` and `rules_from` exclude each other");
        }
        let elsewhere = root.section("rules_from", &["dir", "redis", "http", "poll"], |section| {
            Self::read_from(section, store)
        });
        elsewhere.unwrap_or(inline)
    }

    fn read_from(section: &mut Section<'_, '_>, store: &Store) -> Option<Self> {
        let named: Vec<_> = SOURCES
            .into_iter()
            .filter(|name| section.get(name).is_some())
            .collect();
        let &[source] = &*named else {
            section.missing(
                "`rules_from` must have exactly one of `dir: PATH`, `redis: {}` and `http: { url: … }`",
            );
            return None;
        };
        let default_poll = match source {
            "http" => HTTP_POLL,
            _ => DEFAULT_POLL,
        };
        let poll = section.duration("poll", default_poll);
        match source {
            "dir" => {
                let path = section.path("dir")?;
                Some(Self::Directory { path, poll })
            }
            "http" => {
                let fields = &["url", "token_file", "ca", "cache_file"];
                let http = section.optional_section("http", fields, |http| {
                    let url = http.parsed("url", parse_url);
                    if url.is_none() {
                        http.missing("`http` needs `url`");
                    }
                    let config = HttpRulesConfig {
                        token_file: http.path("token_file"),
                        ca: http.path("ca"),
                        cache_file: http.path("cache_file"),
                        poll,
                        url: url?,
                    };
                    Some(Self::Http(config))
                });
                http.flatten()
            }
            _ => {
                let redis = section.get("redis")?;
                Section::read(redis, "`redis` (which must be {})", &[], section.faults);
                if !matches!(store, Store::Redis(_)) {
                    section.fault(redis, "rules from Redis need `store: { redis: … }`");
                }
                section.show("redis", tree::map([]));
                Some(Self::Redis { poll })
            }
        }
    }

    /// Returns the server that has the rules, if they are not in files.
    pub(crate) fn server(&self) -> Option<String> {
        match self {
            Self::Inline(_) | Self::Directory { .. } => None,
            Self::Redis { .. } => Some("Redis".into()),
            Self::Http(http) => Some(http.url.to_string()),
        }
    }
}

fn parse_url(text: &str) -> Result<HttpUrl, String> {
    HttpUrl::parse_strict(text, "https://example.com/rules.yaml")
}
