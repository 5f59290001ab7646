//! The client that writes the record, and runs what reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::{Cmd, FromRedisValue, Value};
use tokio::time::Instant;

use super::batch::{Call, ConfirmedBlock, RecordBatch, audit_call, change_call};
use super::entries::RecordedChange;
use super::keys::RecordKeys;
use crate::error::{is_missing_script, unexpected};
use crate::reason;
use crate::servers::Servers;

/// The time for a batch, or for one part of a read.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How many keys one part of a read has, so that the server is not busy for long.
const KEYS_AT_ONCE: usize = 64;

/// The record of what happened, shared by the instances that share a store.
#[derive(Clone, Debug)]
pub struct Record {
    servers: Arc<Servers>,
    pub(super) keys: RecordKeys,
    /// The field of this instance in hashes.
    guard: Arc<str>,
    pub(super) keep: Duration,
    batches: Arc<AtomicU64>,
}

impl Record {
    /// `instance` must be an id that no other process has, nor this one before a restart.
    pub(crate) fn new(servers: Arc<Servers>, prefix: &str, instance: &str, keep: Duration) -> Self {
        Self {
            servers,
            keys: RecordKeys::new(prefix),
            guard: format!("i:{instance}").into(),
            keep,
            batches: Arc::default(),
        }
    }

    /// Creates an empty batch. Batches must be sent in the order in which they were created, each
    /// until it is done.
    pub fn new_batch(&self) -> RecordBatch {
        let number = 1 + self.batches.fetch_add(1, Ordering::Relaxed);
        RecordBatch::new(number, &self.guard, self.keys.clone(), self.keep)
    }

    /// Sends what the server has not yet confirmed of a batch, in one pipeline for each server.
    /// After an error, some of it is left, and the batch can be sent again: the server adds nothing
    /// twice. What belongs to a key that another program has taken is given up, and counted
    /// ([`RecordBatch::take_lost`]).
    pub async fn send(&self, batch: &mut RecordBatch) -> Result<(), StoreError> {
        let calls: Vec<_> = batch.calls().iter().collect();
        let replies = self.run(&calls).await;
        let mut failure: Option<StoreError> = None;
        let (mut left, mut confirmed, mut lost) = (Vec::new(), Vec::new(), 0_u64);
        for (call, reply) in batch.take_calls().into_iter().zip(replies) {
            match reply {
                Ok(reply) => confirmed.extend(confirmed_block(&call, reply)),
                Err(error) => {
                    // What is never accepted must not hold up what comes after it.
                    if error.reason == reason::BAD_TYPES {
                        lost = lost.saturating_add(call.decisions);
                    } else {
                        left.push(call);
                    }
                    failure.get_or_insert(error);
                }
            }
        }
        batch.add_lost(lost);
        batch.set_calls(left);
        batch.add_confirmed(confirmed);
        failure.map_or(Ok(()), Err)
    }

    /// Records that a rule set has changed, once for all instances that take the change over. The
    /// revision that an instance starts with (`is_first`) is no change, unless another one is known.
    pub async fn add_change(
        &self,
        change: &RecordedChange,
        is_first: bool,
    ) -> Result<(), StoreError> {
        let call = change_call(&self.keys, self.keep, change, is_first);
        let mut replies = self.run(&[&call]).await;
        replies.pop().unwrap_or(Ok(Value::Nil)).map(drop)
    }

    /// Adds an entry to the audit trail of all instances, once even if it is added again because
    /// the reply was lost. `entry` must be unique.
    pub async fn add_audit(&self, entry: &str) -> Result<(), StoreError> {
        let call = audit_call(&self.keys, self.keep, entry);
        let mut replies = self.run(&[&call]).await;
        replies.pop().unwrap_or(Ok(Value::Nil)).map(drop)
    }

    /// Runs scripts in pipelines. Sends the text of those that a server lacks.
    pub(super) async fn run(&self, calls: &[&Call]) -> Vec<Result<Value, StoreError>> {
        let deadline = Instant::now() + TIMEOUT;
        let commands: Vec<_> = calls
            .iter()
            .map(|call| (call.key.as_bytes(), call.command("EVALSHA")))
            .collect();
        let mut replies = self.servers.pipeline(&commands, deadline).await;
        let is_missing = |reply: &Result<Value, StoreError>| {
            let error = reply.as_ref().err();
            error.is_some_and(is_missing_script)
        };
        let missing: Vec<_> = (0..calls.len())
            .filter(|index| is_missing(&replies[*index]))
            .collect();
        if !missing.is_empty() {
            let commands: Vec<_> = missing
                .iter()
                .map(|index| (calls[*index].key.as_bytes(), calls[*index].command("EVAL")))
                .collect();
            let again = self.servers.pipeline(&commands, deadline).await;
            for (index, reply) in missing.into_iter().zip(again) {
                replies[index] = reply;
            }
        }
        replies
    }

    /// Reads one value of each key, in the order of the keys, some at once.
    pub(super) async fn read_all<T: FromRedisValue>(
        &self,
        keys: &[String],
        command: impl Fn(&str) -> Cmd,
    ) -> Result<Vec<T>, StoreError> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let commands: Vec<_> = keys
                .iter()
                .map(|key| (key.as_bytes(), command(key)))
                .collect();
            let deadline = Instant::now() + TIMEOUT;
            for reply in self.servers.pipeline(&commands, deadline).await {
                let value = redis::from_redis_value(reply?);
                values.push(value.map_err(|_| unexpected("the record"))?);
            }
        }
        Ok(values)
    }
}

/// Returns what a script has reported of a minute and a rule with denials.
pub(super) fn confirmed_block(call: &Call, reply: Value) -> Option<ConfirmedBlock> {
    let (hour, member) = call.indexed.clone()?;
    let (rows, dropped) = redis::from_redis_value(reply).ok()?;
    Some(ConfirmedBlock {
        hour,
        member,
        rows,
        dropped,
    })
}
