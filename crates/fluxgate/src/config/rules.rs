//! Where the rules come from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;

use super::mongo_url::MongoUrl;
use super::redact;
use super::section::Section;
use super::store::Store;
use super::tree;
use super::url::HttpUrl;

/// The default of `poll` for files and Redis.
pub const DEFAULT_POLL: Duration = Duration::from_secs(5);
/// The default of `poll` for rules from HTTP.
const HTTP_POLL: Duration = Duration::from_secs(10);
/// The default of `poll` for rules from MongoDB.
const MONGODB_POLL: Duration = Duration::from_secs(30);
/// Where rules may come from.
const SOURCES: [&str; 4] = ["dir", "redis", "http", "mongodb"];

/// The fault of a program that was built without the driver.
const WITHOUT_MONGODB: &str = "this program was built without MongoDB; build it with \
    `cargo build --release --features mongodb`, or use a package or the container image";

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
    /// From a collection of MongoDB.
    MongoDb(MongoRulesConfig),
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

/// A collection of MongoDB with the rule documents of OpenFluxGate.
#[derive(Clone, Debug)]
pub struct MongoRulesConfig {
    /// The connection string.
    pub url: MongoUrlSource,
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// The file that keeps the last good rules.
    pub cache_file: Option<PathBuf>,
    /// How often the collection is read.
    pub poll: Duration,
}

/// Where a connection string is.
#[derive(Clone, Debug)]
pub enum MongoUrlSource {
    /// In the config.
    Given(MongoUrl),
    /// In a file.
    File(PathBuf),
}

impl MongoRulesConfig {
    /// Returns the database and the collection.
    pub fn namespace(&self) -> String {
        format!("{}.{}", self.database, self.collection)
    }

    fn read(section: &mut Section<'_, '_>, poll: Duration) -> Option<Self> {
        let [url, url_file] = ["url", "url_file"].map(|name| section.get(name).is_some());
        let given = section.parsed("url", MongoUrl::parse);
        let file = section.path("url_file");
        if url == url_file {
            section.missing("`mongodb` needs exactly one of `url` and `url_file`");
        }
        let database = mongo_name(section, "database", "fluxgate", "/\\. \"$");
        let collection = mongo_name(section, "collection", "rate_limit_rules", "$");
        let config = Self {
            url: match (given, file) {
                (Some(url), None) => MongoUrlSource::Given(url),
                (None, Some(path)) => MongoUrlSource::File(path),
                _ => return None,
            },
            database,
            collection,
            cache_file: section.path("cache_file"),
            poll,
        };
        Some(config)
    }
}

/// Returns the name of a database or a collection, or the default.
fn mongo_name(
    section: &mut Section<'_, '_>,
    field: &'static str,
    default: &'static str,
    forbidden: &str,
) -> String {
    let Some(node) = section.get(field) else {
        section.show(field, tree::text(default));
        return default.to_owned();
    };
    let name = section.name(field).unwrap_or(default);
    if name.contains(|char| forbidden.contains(char)) {
        section.fault(
            node,
            format!("`{field}` must not contain any of {forbidden}"),
        );
    }
    name.to_owned()
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
        let fields = &["dir", "redis", "http", "mongodb", "poll"];
        let elsewhere = root.section("rules_from", fields, |section| {
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
                "`rules_from` must have exactly one of `dir: PATH`, `redis: {}`, `http: { url: … }` and \
                 `mongodb: { url: … }`",
            );
            return None;
        };
        let default_poll = match source {
            "http" => HTTP_POLL,
            "mongodb" => MONGODB_POLL,
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
                    if http.get("url").is_none() {
                        http.missing("`http` needs `url`");
                    }
                    let url = http.parsed("url", parse_url);
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
            "mongodb" => {
                let node = section.get("mongodb")?;
                if !cfg!(feature = "mongodb") {
                    section.fault(node, WITHOUT_MONGODB);
                }
                let fields = &["url", "url_file", "database", "collection", "cache_file"];
                let config = section.section("mongodb", fields, |section| {
                    MongoRulesConfig::read(section, poll)
                });
                config.map(Self::MongoDb)
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

    /// Returns the file that keeps the last good rules of a server, and its field in the config.
    pub(crate) fn cache_file(&self) -> Option<(&'static str, &Path)> {
        let (field, path) = match self {
            Self::Http(http) => ("rules_from.http.cache_file", &http.cache_file),
            Self::MongoDb(mongodb) => ("rules_from.mongodb.cache_file", &mongodb.cache_file),
            Self::Inline(_) | Self::Directory { .. } | Self::Redis { .. } => return None,
        };
        Some((field, path.as_deref()?))
    }

    /// Returns the server that has the rules, if they are not in files.
    pub(crate) fn server(&self) -> Option<String> {
        match self {
            Self::Inline(_) | Self::Directory { .. } => None,
            Self::Redis { .. } => Some("Redis".into()),
            Self::Http(http) => Some(http.url.to_string()),
            Self::MongoDb(mongodb) => Some(format!("MongoDB, {}", mongodb.namespace())),
        }
    }
}

fn parse_url(text: &str) -> Result<HttpUrl, String> {
    HttpUrl::parse_strict(text, "https://example.com/rules.yaml")
}
