//! Where the rules come from.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Faults, Node};

use super::read::Section;
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
    pub(super) fn read(
        rule_sets: Option<&Node>,
        rules_from: Option<&Node>,
        options: RuleOptions,
        store: &Store,
        faults: &mut Faults,
    ) -> Self {
        // Both are read although they exclude each other: all faults are reported.
        let inline = rule_sets.map(|sets| RuleSets::read(sets, options, faults));
        let inline = Self::Inline(inline.unwrap_or_default());
        let Some(from) = rules_from else {
            return inline;
        };
        if rule_sets.is_some() {
            faults.add(
                from.position,
                "`rule_sets` and `rules_from` exclude each other",
            );
        }
        Self::read_from(from, store, faults).unwrap_or(inline)
    }

    fn read_from(node: &Node, store: &Store, faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let section = Section::read(node, "`rules_from`", &["dir", "redis", "poll"], faults);
        let poll = section.duration("poll", DEFAULT_POLL, faults);
        match (section.get("dir"), section.get("redis")) {
            (Some(_), None) => {
                let path = section.path("dir", faults)?;
                Some(Self::Directory { path, poll })
            }
            (None, Some(redis)) => {
                Section::read(redis, "`redis` (which must be {})", &[], faults);
                if !matches!(store, Store::Redis(_)) {
                    faults.add(
                        redis.position,
                        "rules from Redis need `store: { redis: … }`",
                    );
                }
                Some(Self::Redis { poll })
            }
            _ => {
                if faults.count() == before {
                    faults.add(
                        node.position,
                        "`rules_from` must have either `dir: PATH` or `redis: {}`",
                    );
                }
                None
            }
        }
    }

    /// Returns the value of `rules_from`, if the rules are not inline.
    pub(super) fn rules_from_node(&self) -> Option<Node> {
        let (dir, redis, poll) = match self {
            Self::Inline(_) => return None,
            Self::Directory { path, poll } => (Some(tree::path(path)), None, poll),
            Self::Redis { poll } => (None, Some(tree::map([])), poll),
        };
        let poll = Some(tree::duration(*poll));
        Some(tree::map([("dir", dir), ("redis", redis), ("poll", poll)]))
    }
}
