//! Rule sets that are kept in the store's Redis.
//!
//! Each has a key of its own, `<prefix>:1:{rules}:set:<name>`, which holds its
//! text. The hash `<prefix>:1:{rules}:index` has the ETag of each under its name
//! and, under the empty name, a version that is another after each change. One
//! script changes all of this together and tells the channel `<prefix>:rules`.
//! On a cluster all of it is in one slot.

mod changes;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use fluxgate_core::{Reason, StoreError};
use redis::{Cmd, Value};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::endpoint::unexpected;
use crate::error::error;
use crate::node::Work;
use crate::store::RedisStore;

pub use changes::RuleChanges;

/// Nobody's decision waits for this.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How large the text of a stored rule set may be.
pub const MOST_RULE_BYTES: usize = 1 << 20;
/// How often a read is begun again because somebody wrote meanwhile.
const MOST_READS: usize = 16;
const ETAG_BYTES: usize = 16;
const WRITE: &str = include_str!("lua/write_rules.lua");

/// Rule sets in Redis, as texts.
#[derive(Clone, Debug)]
pub struct RuleStore {
    store: RedisStore,
    /// What all keys begin with.
    head: String,
    channel: String,
}

/// Everything that is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRules {
    /// Another after each change; `None` if nothing was ever stored.
    pub version: Option<String>,
    /// The sets by their names.
    pub sets: BTreeMap<String, StoredSet>,
}

/// One rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSet {
    /// A hash of the text.
    pub etag: String,
    /// What was stored.
    pub text: String,
}

/// What a writer thinks is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// Anything or nothing.
    Any,
    /// Nothing.
    Absent,
    /// Anything.
    Present,
    /// Just this.
    Etag(&'a str),
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was done. `before` is the ETag of what was there.
    Done {
        /// What was there before.
        before: Option<String>,
    },
    /// It was not: something else is there.
    Conflict {
        /// What is there.
        now: Option<String>,
    },
}

/// What is known by this text: the first half of its SHA-256, in hexadecimal.
pub fn etag_of(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let digits = hash.iter().take(ETAG_BYTES);
    digits.map(|byte| format!("{byte:02x}")).collect()
}

impl RuleStore {
    pub(crate) fn new(store: RedisStore, prefix: &str) -> Self {
        Self {
            store,
            head: format!("{prefix}:1:{{rules}}:"),
            channel: format!("{prefix}:rules"),
        }
    }

    /// What stands for all that is stored; `None` if nothing was ever stored.
    pub async fn version(&self) -> Result<Option<String>, StoreError> {
        let mut get = redis::cmd("HGET");
        get.arg(self.index()).arg("");
        text_of(self.ask(&get).await?)
    }

    /// Everything, at one moment.
    pub async fn read(&self) -> Result<StoredRules, StoreError> {
        for _ in 0..MOST_READS {
            if let Some(rules) = self.try_read().await? {
                return Ok(rules);
            }
        }
        Err(error(
            Reason::BAD_RESPONSE,
            "stored rule sets are not what their index says",
        ))
    }

    /// `None` if somebody wrote between the two looks.
    async fn try_read(&self) -> Result<Option<StoredRules>, StoreError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(self.index());
        let index = redis::from_redis_value(self.ask(&get).await?);
        let mut index: BTreeMap<String, String> = index.map_err(|_| unexpected("HGETALL"))?;
        let version = index.remove("");
        let mut sets = BTreeMap::new();
        if !index.is_empty() {
            let mut get = redis::cmd("MGET");
            for name in index.keys() {
                get.arg(self.key(name));
            }
            let texts = redis::from_redis_value(self.ask(&get).await?);
            let texts: Vec<Option<String>> = texts.map_err(|_| unexpected("MGET"))?;
            for ((name, etag), text) in index.into_iter().zip(texts) {
                match text.filter(|text| etag_of(text) == etag) {
                    Some(text) => sets.insert(name, StoredSet { etag, text }),
                    None => return Ok(None),
                };
            }
        }
        Ok(Some(StoredRules { version, sets }))
    }

    /// One rule set.
    pub async fn get(&self, name: &str) -> Result<Option<StoredSet>, StoreError> {
        let mut get = redis::cmd("GET");
        get.arg(self.key(name));
        let text = text_of(self.ask(&get).await?)?;
        Ok(text.map(|text| StoredSet {
            etag: etag_of(&text),
            text,
        }))
    }

    /// Whether the index has a rule set although there is no text of it.
    pub async fn is_lost(&self, name: &str) -> Result<bool, StoreError> {
        let mut get = redis::cmd("HGET");
        get.arg(self.index()).arg(name);
        // Looked at last: what was stored meanwhile is not lost.
        Ok(text_of(self.ask(&get).await?)?.is_some() && self.get(name).await?.is_none())
    }

    /// Stores a rule set if what is there is as expected.
    pub async fn put(
        &self,
        name: &str,
        text: &str,
        expected: Expected<'_>,
    ) -> Result<Written, StoreError> {
        self.write(name, expected, &etag_of(text), text).await
    }

    /// Deletes a rule set if what is there is as expected.
    pub async fn delete(&self, name: &str, expected: Expected<'_>) -> Result<Written, StoreError> {
        self.write(name, expected, "", "").await
    }

    /// Hears of changes from now on, over a connection of its own.
    pub async fn changes(&self) -> Result<RuleChanges, StoreError> {
        let deadline = Instant::now() + TIMEOUT;
        let index = self.index();
        let node = self.store.node_of(index.as_bytes(), deadline).await?;
        RuleChanges::subscribe(&node, &self.channel).await
    }

    async fn write(
        &self,
        name: &str,
        expected: Expected<'_>,
        etag: &str,
        text: &str,
    ) -> Result<Written, StoreError> {
        let expected = match expected {
            Expected::Any => "any".to_owned(),
            Expected::Absent => "absent".to_owned(),
            Expected::Present => "present".to_owned(),
            Expected::Etag(etag) => format!("={etag}"),
        };
        // Writes are rare, so the text of the script may travel with each.
        let mut write = redis::cmd("EVAL");
        write.arg(WRITE).arg(2).arg(self.index());
        write.arg(self.key(name)).arg(name).arg(expected).arg(etag);
        write.arg(text).arg(next_version()).arg(&self.channel);
        let reply = redis::from_redis_value(self.ask(&write).await?);
        let (done, before): (u8, String) = reply.map_err(|_| unexpected("the rule script"))?;
        let before = Some(before).filter(|etag| !etag.is_empty());
        match done {
            0 => Ok(Written::Conflict { now: before }),
            _ => Ok(Written::Done { before }),
        }
    }

    async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let deadline = Instant::now() + TIMEOUT;
        let index = self.index();
        let work = Work::Command(command);
        self.store.perform(&work, index.as_bytes(), deadline).await
    }

    fn index(&self) -> String {
        format!("{}index", self.head)
    }

    fn key(&self, name: &str) -> String {
        format!("{}set:{name}", self.head)
    }
}

fn text_of(reply: Value) -> Result<Option<String>, StoreError> {
    redis::from_redis_value(reply).map_err(|_| unexpected("a look at stored rules"))
}

/// Never twice the same, short of a coincidence.
fn next_version() -> String {
    let random = |salt: u8| RandomState::new().hash_one(salt);
    format!("{:016x}{:016x}", random(0), random(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_stands_for_the_text() {
        assert_eq!(etag_of(""), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_ne!(etag_of("{}"), etag_of("{ }"));
        assert_ne!(next_version(), next_version());
    }
}
