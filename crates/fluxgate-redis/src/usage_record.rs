//! What the instances know of identities: the heaviest of each rule and hour, and what each instance
//! shares of its last minute.
//!
//! | key | value |
//! |---|---|
//! | `<prefix>:1:usage:{<set>/<rule>}:<hour>` | a sorted set of the units of each instance and handle, within the hour since 1970 |
//! | `<prefix>:1:{rules}:shared:<kind>:<instance>` | what an instance shares, for seconds |
//!
//! Instances write sums, not differences: a write that is sent again because its reply was lost
//! changes nothing. No decision waits for these commands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::{Cmd, FromRedisValue};

use crate::servers::Servers;

const WRITE_SCRIPT: &str = include_str!("lua/heaviest.lua");
/// How many members a rule and hour have for each identity that is kept: each instance that has
/// counted it has one.
const MEMBERS_PER_IDENTITY: usize = 4;

/// The heaviest identities of all instances that share a store.
#[derive(Clone, Debug)]
pub struct UsageRecord {
    servers: Arc<Servers>,
    prefix: Box<str>,
}

/// A rule within an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleHour<'a> {
    /// The rule set.
    pub rule_set: &'a str,
    /// The rule.
    pub rule: &'a str,
    /// The number of the hour since 1970.
    pub hour: u64,
}

impl UsageRecord {
    pub(crate) fn new(servers: Arc<Servers>, prefix: &str) -> Self {
        Self {
            servers,
            prefix: prefix.into(),
        }
    }

    /// Writes how many units an instance has counted for each identity. Keeps about `most`
    /// identities, those with the most units, for `ttl`.
    pub async fn write(
        &self,
        at: RuleHour<'_>,
        instance: &str,
        units: &[(String, u64)],
        most: usize,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        let key = self.key(at);
        let mut write = redis::cmd("EVAL");
        write.arg(WRITE_SCRIPT).arg(1).arg(&key);
        write.arg(most.saturating_mul(MEMBERS_PER_IDENTITY));
        write.arg(ttl.as_millis() as u64);
        for (identity, units) in units {
            write.arg(*units).arg(format!("{instance} {identity}"));
        }
        self.run::<u64>(&write, &key).await.map(drop)
    }

    /// Returns the identities with the most units, at most `most`, with the units that all
    /// instances have counted.
    pub async fn heaviest(
        &self,
        at: RuleHour<'_>,
        most: usize,
    ) -> Result<HashMap<String, u64>, StoreError> {
        let key = self.key(at);
        let members = most.saturating_mul(MEMBERS_PER_IDENTITY).max(1);
        let mut read = redis::cmd("ZRANGE");
        // Those with the highest scores.
        read.arg(&key).arg(format!("-{members}")).arg(-1);
        read.arg("WITHSCORES");
        let members: Vec<(String, u64)> = self.run(&read, &key).await?;
        let mut sums = HashMap::new();
        for (member, units) in &members {
            if let Some((_, identity)) = member.split_once(' ') {
                *sums.entry(identity.to_owned()).or_default() += units;
            }
        }
        Ok(sums)
    }

    /// Writes what an instance shares with the others, for `ttl`.
    pub async fn share(
        &self,
        kind: &str,
        instance: &str,
        content: &[u8],
        ttl: Duration,
    ) -> Result<(), StoreError> {
        let key = self.shared_key(kind, instance);
        let mut write = redis::cmd("SET");
        write.arg(&key).arg(content);
        write.arg("PX").arg(ttl.as_millis() as u64);
        self.run::<String>(&write, &key).await.map(drop)
    }

    /// Returns what these instances share, as far as they do.
    pub async fn shared(
        &self,
        kind: &str,
        instances: &[String],
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let keys: Vec<_> = instances
            .iter()
            .map(|instance| self.shared_key(kind, instance))
            .collect();
        let Some(first) = keys.first() else {
            return Ok(Vec::new());
        };
        let found: Vec<Option<Vec<u8>>> = self.run(&Cmd::mget(&keys), first).await?;
        Ok(found.into_iter().flatten().collect())
    }

    fn key(&self, at: RuleHour<'_>) -> String {
        let RuleHour {
            rule_set,
            rule,
            hour,
        } = at;
        format!("{}:1:usage:{{{rule_set}/{rule}}}:{hour}", self.prefix)
    }

    fn shared_key(&self, kind: &str, instance: &str) -> String {
        format!("{}:1:{{rules}}:shared:{kind}:{instance}", self.prefix)
    }

    async fn run<T: FromRedisValue>(&self, command: &Cmd, key: &str) -> Result<T, StoreError> {
        self.servers
            .command(command, key, "the record of identities")
            .await
    }
}
