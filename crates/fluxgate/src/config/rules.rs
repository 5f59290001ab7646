//! Where the rules come from.

use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::yaml::{Faults, Node};
use fluxgate_core::{RuleOptions, RuleSets};

use super::store::Store;
use super::{read, tree};

/// How often is looked for new rules, unless told otherwise.
pub const DEFAULT_POLL: Duration = Duration::from_secs(5);

/// Where the rules come from.
#[derive(Debug)]
pub enum Rules {
    /// From the config itself.
    Inline(RuleSets),
    /// From all `*.yaml` of a directory.
    Directory {
        /// The directory.
        path: PathBuf,
        /// How often is looked for changes.
        poll: Duration,
    },
    /// From the store's Redis.
    Redis {
        /// How often is looked for changes.
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
        // Both are read even if only one may be there: all faults are to be told.
        let here = rule_sets.map(|sets| RuleSets::read(sets, options, faults));
        let here = Self::Inline(here.unwrap_or_default());
        let Some(from) = rules_from else {
            return here;
        };
        if rule_sets.is_some() {
            faults.add(
                from.position,
                "rules stand either in `rule_sets` or where `rules_from` says, not both",
            );
        }
        Self::read_from(from, store, faults).unwrap_or(here)
    }

    fn read_from(node: &Node, store: &Store, faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let [dir, redis, poll] = node.fields("`rules_from`", ["dir", "redis", "poll"], faults);
        let poll = read::duration(poll, "`poll`", DEFAULT_POLL, faults);
        match (dir, redis) {
            (Some(_), None) => {
                let path = read::path(dir, "`dir`", faults)?;
                Some(Self::Directory { path, poll })
            }
            (None, Some(redis)) => {
                let [] = redis.fields("`redis` (which is to be {})", [], faults);
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

    /// What `rules_from` says, if anything.
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
