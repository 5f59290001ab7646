//! Where the rules come from.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;

use super::redact;
use super::section::Section;
use super::store::Store;
use super::tree;

/// The default of `poll`.
pub const DEFAULT_POLL: Duration = Duration::from_secs(5);

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
        let elsewhere = root.section("rules_from", &["dir", "redis", "poll"], |section| {
            Self::read_from(section, store)
        });
        elsewhere.unwrap_or(inline)
    }

    fn read_from(section: &mut Section<'_, '_>, store: &Store) -> Option<Self> {
        let poll = section.duration("poll", DEFAULT_POLL);
        match (section.get("dir"), section.get("redis")) {
            (Some(_), None) => {
                let path = section.path("dir")?;
                Some(Self::Directory { path, poll })
            }
            (None, Some(redis)) => {
                Section::read(redis, "`redis` (which must be {})", &[], section.faults);
                if !matches!(store, Store::Redis(_)) {
                    section.fault(redis, "rules from Redis need `store: { redis: … }`");
                }
                section.show("redis", tree::map([]));
                Some(Self::Redis { poll })
            }
            _ => {
                section.missing("`rules_from` must have either `dir: PATH` or `redis: {}`");
                None
            }
        }
    }
}
