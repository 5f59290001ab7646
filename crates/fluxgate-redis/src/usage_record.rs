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
use tokio::time::Instant;

use crate::error::unexpected;
use crate::servers::Servers;

const WRITE_SCRIPT: &str = include_str!("lua/heaviest.lua");
/// How many members a rule and hour have for each identity that is kept: each instance that has
/// counted it has one.
const MEMBERS_PER_IDENTITY: usize = 4;
/// How many rules and hours are read at once, so that the server is not busy for long.
const KEYS_AT_ONCE: usize = 64;
/// What is done, in errors.
const WHAT: &str = "the record of identities";
/// The time for a batch, or for one part of a read.
const TIMEOUT: Duration = Duration::from_secs(2);

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

/// Units that an instance has counted for identities of a rule within an hour.
#[derive(Clone, Debug)]
pub struct HourlyUnits<'a> {
    /// The rule and the hour.
    pub at: RuleHour<'a>,
    /// The handles of identities, with their units.
    pub units: Vec<(String, u64)>,
}

/// What an instance writes at once.
#[derive(Clone, Debug)]
pub struct UsageBatch<'a> {
    /// The units of some rules and hours.
    pub units: Vec<HourlyUnits<'a>>,
    /// About how many identities each rule and hour keeps: those with the most units.
    pub most: usize,
    /// For how long units are kept.
    pub units_ttl: Duration,
    /// The kind of what the instance shares with the others.
    pub kind: &'a str,
    /// The content.
    pub shared: Vec<u8>,
    /// For how long it is shared.
    pub shared_ttl: Duration,
}

impl UsageRecord {
    pub(crate) fn new(servers: Arc<Servers>, prefix: &str) -> Self {
        Self {
            servers,
            prefix: prefix.into(),
        }
    }

    /// Writes in one pipeline for each server what an instance has counted and shares. Returns for each
    /// of the units whether they were written. What is written again changes nothing.
    pub async fn write(
        &self,
        instance: &str,
        batch: &UsageBatch<'_>,
    ) -> Vec<Result<(), StoreError>> {
        let mut keys: Vec<_> = batch.units.iter().map(|units| self.key(units.at)).collect();
        let shared_key = self.shared_key(batch.kind, instance);
        keys.push(shared_key.clone());
        let units = batch.units.iter().zip(&keys).map(|(units, key)| {
            let mut write = redis::cmd("EVAL");
            write.arg(WRITE_SCRIPT).arg(1).arg(key);
            write.arg(batch.most.saturating_mul(MEMBERS_PER_IDENTITY));
            write.arg(batch.units_ttl.as_millis() as u64);
            for (identity, units) in &units.units {
                write.arg(*units).arg(format!("{instance} {identity}"));
            }
            write
        });
        let share = share_command(&shared_key, &batch.shared, batch.shared_ttl);
        let commands = units.chain([share]);
        let commands: Vec<_> = { keys.iter() }
            .map(String::as_bytes)
            .zip(commands)
            .collect();
        let replies = self.servers.pipeline(&commands, Instant::now() + TIMEOUT);
        let mut replies = replies.await;
        // Whether it is shared matters only until the next time.
        replies.pop();
        replies.into_iter().map(|reply| reply.map(drop)).collect()
    }

    /// Returns for each rule and hour the identities with the most units, at most `most`, with the units
    /// that all instances have counted.
    pub async fn heaviest(
        &self,
        hours: &[RuleHour<'_>],
        most: usize,
    ) -> Result<Vec<HashMap<String, u64>>, StoreError> {
        // The largest number that the server takes is less than ours.
        let members = most.saturating_mul(MEMBERS_PER_IDENTITY);
        let members = members.clamp(1, u32::MAX as usize);
        let mut all = Vec::with_capacity(hours.len());
        for hours in hours.chunks(KEYS_AT_ONCE) {
            let keys: Vec<_> = hours.iter().map(|at| self.key(*at)).collect();
            let commands = keys.iter().map(|key| {
                let mut read = redis::cmd("ZRANGE");
                // Those with the highest scores.
                read.arg(key).arg(format!("-{members}")).arg(-1);
                read.arg("WITHSCORES");
                (key.as_bytes(), read)
            });
            let commands: Vec<_> = commands.collect();
            let deadline = Instant::now() + TIMEOUT;
            for reply in self.servers.pipeline(&commands, deadline).await {
                let members: Vec<(String, u64)> =
                    redis::from_redis_value(reply?).map_err(|_| unexpected(WHAT))?;
                let mut sums = HashMap::<String, u64>::new();
                for (member, units) in &members {
                    if let Some((_, identity)) = member.split_once(' ') {
                        let sum = sums.entry(identity.to_owned()).or_default();
                        *sum = sum.saturating_add(*units);
                    }
                }
                all.push(sums);
            }
        }
        Ok(all)
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
        let write = share_command(&key, content, ttl);
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
        self.servers.command(command, key, WHAT).await
    }
}

fn share_command(key: &str, content: &[u8], ttl: Duration) -> Cmd {
    let mut write = redis::cmd("SET");
    write.arg(key).arg(content);
    write.arg("PX").arg(ttl.as_millis() as u64);
    write
}
