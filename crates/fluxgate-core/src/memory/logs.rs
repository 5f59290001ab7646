//! One shard of sliding logs, whose states have no fixed size.

use hashbrown::HashMap;

use super::Retention;
use super::slot::Loss;
use super::table::{Key, Table};
use crate::algorithm::{Log, LogAssessment};
use crate::rules::{Band, RuleNumber};
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

    /// Writes the charge of an assessment that passed.
    pub(super) fn charge(
        &mut self,
        table: &Table,
        key: &Key,
        band: &Band,
        now: Timestamp,
        assessment: &LogAssessment,
    ) {
        if let Some(log) = self.get_mut(key.fingerprint) {
            log.correct(assessment);
            if assessment.charges {
                log.charge(band.limit(), assessment);
            }
            return;
        }
        if !assessment.charges {
            return;
        }
        if self.is_full() && table.retention == Retention::UntilFull {
            table.forget(self.sweep(now));
        }
        if !table.try_count() && !self.evict(now) {
            // As with lines: a charge is never dropped.
            table.count();
        }
        let mut log = Log::default();
        log.charge(band.limit(), assessment);
        let entry = Entry {
            log,
            rule: key.rule,
            capacity: band.limit().capacity(),
        };
        self.logs.insert(key.fingerprint, entry);
    }

    pub(super) fn remove(&mut self, key: u128) -> bool {
        self.logs.remove(&key).is_some()
    }

    /// Whether one more key would make the map grow.
    fn is_full(&self) -> bool {
        self.logs.len() == self.logs.capacity()
    }

    /// Forgets the logs of which nothing counts any more; says how many.
    fn sweep(&mut self, now: Timestamp) -> usize {
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
    fn evict(&mut self, now: Timestamp) -> bool {
        let loss = |entry: &Entry| -> Loss { (entry.log.units(now) << 16) / entry.capacity };
        let cheapest = self.logs.iter().min_by_key(|(_, entry)| loss(entry));
        match cheapest.map(|(key, _)| *key) {
            Some(key) => self.remove(key),
            None => false,
        }
    }
}
