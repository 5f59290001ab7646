//! Where the limiter keeps its state.

mod redis;

use std::num::NonZeroUsize;

use fluxgate_core::yaml::{Faults, Node};

use super::read::Section;
use super::tree;
pub use redis::{Redis, RedisMode, RedisTls};

const DEFAULT_MAX_KEYS: u64 = 1_000_000;
const DEFAULT_MAX_LOG_EVENTS: u64 = 4_000_000;
const MAX_COUNT: u64 = 1_000_000_000;

/// Where the limiter keeps its state.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this process.
    Memory {
        /// The maximum number of keys.
        max_keys: NonZeroUsize,
        /// The maximum number of events in all sliding logs together.
        max_log_events: NonZeroUsize,
    },
    /// In Redis, shared with other instances.
    Redis(Box<Redis>),
}

impl Default for Store {
    fn default() -> Self {
        Self::memory(DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_EVENTS)
    }
}

impl Store {
    fn memory(max_keys: u64, max_log_events: u64) -> Self {
        let [max_keys, max_log_events] = [max_keys, max_log_events].map(|max| {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            NonZeroUsize::new(max).unwrap_or(NonZeroUsize::MIN)
        });
        Self::Memory {
            max_keys,
            max_log_events,
        }
    }

    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        const ALLOWED: &str = "`store` must be memory, { memory: … } or { redis: … }";
        let Some(node) = node else {
            return Self::default();
        };
        if let Some(text) = node.as_text() {
            // The text itself is not repeated: it may be a URL with a password.
            if text != "memory" {
                faults.add(node.position, ALLOWED);
            }
            return Self::default();
        }
        let before = faults.count();
        let section = Section::read(node, "`store`", &["memory", "redis"], faults);
        match (section.get("memory"), section.get("redis")) {
            (Some(_), Some(redis)) => {
                faults.add(
                    redis.position,
                    "`store` is either `memory` or `redis`, not both",
                );
                Self::default()
            }
            (Some(memory), None) => {
                const FIELDS: &[&str] = &["max_keys", "max_log_events"];
                let section = Section::read(memory, "`memory`", FIELDS, faults);
                let max_keys = section.whole("max_keys", 1..=MAX_COUNT, faults);
                let max_log_events = section.whole("max_log_events", 1..=MAX_COUNT, faults);
                Self::memory(
                    max_keys.unwrap_or(DEFAULT_MAX_KEYS),
                    max_log_events.unwrap_or(DEFAULT_MAX_LOG_EVENTS),
                )
            }
            (None, Some(redis)) => Self::Redis(Box::new(Redis::read(redis, faults))),
            (None, None) => {
                if faults.count() == before {
                    faults.add(node.position, ALLOWED);
                }
                Self::default()
            }
        }
    }

    pub(super) fn node(&self) -> Node {
        match self {
            Self::Memory {
                max_keys,
                max_log_events,
            } => {
                let memory = tree::map([
                    ("max_keys", Some(tree::plain(max_keys))),
                    ("max_log_events", Some(tree::plain(max_log_events))),
                ]);
                tree::map([("memory", Some(memory))])
            }
            Self::Redis(redis) => tree::map([("redis", Some(redis.node()))]),
        }
    }
}
