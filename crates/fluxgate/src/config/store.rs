//! Where the limiter keeps its state.

mod redis;

use std::num::NonZeroUsize;

use fluxgate_core::yaml::Node;

use super::section::Section;
pub use redis::{Redis, RedisTls};

const DEFAULT_MAX_KEYS: usize = 1_000_000;
const DEFAULT_MAX_LOG_EVENTS: usize = 4_000_000;
const MAX_COUNT: usize = 1_000_000_000;

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

impl Store {
    pub(super) fn read(root: &mut Section<'_, '_>) -> Self {
        const ALLOWED: &str = "`store` must be memory, { memory: … } or { redis: … }";
        let node = root.get("store");
        let (text, mapping) = (
            node.and_then(Node::as_text),
            node.filter(|it| it.as_text().is_none()),
        );
        // The text itself is not repeated: it may be a URL with a password.
        if let (Some(node), Some(text)) = (node, text)
            && text != "memory"
        {
            root.fault(node, ALLOWED);
        }
        let mut section = Section::read(mapping, "`store`", &["memory", "redis"], root.faults);
        let store = match (section.get("memory"), section.get("redis")) {
            (None, Some(_)) => Self::Redis(Box::new(Redis::read(&mut section))),
            (memory, redis) => {
                if let Some(redis) = redis {
                    section.fault(redis, "`store` is either `memory` or `redis`, not both");
                } else if memory.is_none() {
                    section.missing(ALLOWED);
                }
                Self::read_memory(&mut section)
            }
        };
        let shown = section.into_node();
        root.show("store", shown);
        store
    }

    fn read_memory(section: &mut Section<'_, '_>) -> Self {
        const FIELDS: &[&str] = &["max_keys", "max_log_events"];
        section.section("memory", FIELDS, |section| {
            let mut count = |name, default| {
                let count = section.whole(name, 1..=MAX_COUNT, default);
                NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)
            };
            Self::Memory {
                max_keys: count("max_keys", DEFAULT_MAX_KEYS),
                max_log_events: count("max_log_events", DEFAULT_MAX_LOG_EVENTS),
            }
        })
    }
}
