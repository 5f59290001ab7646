//! One shard of sliding logs, whose states have no fixed size.

use hashbrown::HashMap;

use super::slot::Loss;
use crate::algorithm::Log;
use crate::limit::Limit;
use crate::rules::RuleNumber;
use crate::time::Timestamp;

/// Logs by fingerprint.
#[derive(Debug, Default)]
pub(super) struct LogShard {
    logs: HashMap<u128, Entry>,
}

#[derive(Debug)]
struct Entry {
    log: Log,
    rule: RuleNumber,
    capacity: u64,
}

impl LogShard {
    pub(super) fn get(&self, key: u128) -> Option<&Log> {
        self.logs.get(&key).map(|entry| &entry.log)
    }

    pub(super) fn get_mut(&mut self, key: u128) -> Option<&mut Log> {
        self.logs.get_mut(&key).map(|entry| &mut entry.log)
    }

    /// Adds an empty log for a key that is not there.
    pub(super) fn insert(&mut self, key: u128, rule: RuleNumber, limit: &Limit) -> &mut Log {
        let entry = self.logs.entry(key).or_insert_with(|| Entry {
            log: Log::default(),
            rule,
            capacity: limit.capacity(),
        });
        &mut entry.log
    }

    pub(super) fn remove(&mut self, key: u128) -> bool {
        self.logs.remove(&key).is_some()
    }

    /// Whether one more key would make the table grow.
    pub(super) fn is_full(&self) -> bool {
        self.logs.len() == self.logs.capacity()
    }

    /// Forgets the logs of which nothing counts any more; says how many.
    pub(super) fn sweep(&mut self, now: Timestamp) -> usize {
        let before = self.logs.len();
        self.logs.retain(|_, entry| !entry.log.is_spent(now));
        before - self.logs.len()
    }

    pub(super) fn remove_rule(&mut self, rule: RuleNumber) -> usize {
        let before = self.logs.len();
        self.logs.retain(|_, entry| entry.rule != rule);
        before - self.logs.len()
    }

    /// Forgets the log that costs least to forget; says whether there was one.
    pub(super) fn evict(&mut self, now: Timestamp) -> bool {
        let loss = |entry: &Entry| -> Loss { (entry.log.units(now) << 16) / entry.capacity };
        let cheapest = self.logs.iter().min_by_key(|(_, entry)| loss(entry));
        match cheapest.map(|(key, _)| *key) {
            Some(key) => self.remove(key),
            None => false,
        }
    }
}
