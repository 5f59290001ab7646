//! All shards, and how a key is found in them.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::SipHasher13;

use super::Retention;
use super::held::Held;
use super::line::{Glance, Line};
use super::logs::LogShard;
use super::shard::{Shard, Sizes};
use super::slot::{Print, Slot, State};
use crate::algorithm::{Cell, Mode, Verdict};
use crate::limit::Algorithm;
use crate::rules::{Band, RuleNumber};
use crate::time::Timestamp;

/// About this many keys share a shard when the table is full.
const KEYS_PER_SHARD: usize = 512;
const MOST_SHARDS: usize = 2048;

/// All keys.
#[derive(Debug)]
pub(super) struct Table {
    /// Secret, so that nobody can make keys that meet.
    hasher: SipHasher13,
    pub(super) shards: Box<[Shard]>,
    pub(super) logs: Box<[Mutex<LogShard>]>,
    live: AtomicUsize,
    max_keys: usize,
    pub(super) retention: Retention,
    pub(super) sizes: Sizes,
}

/// A counter: one band of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) fingerprint: u128,
    pub(super) shard: u32,
    pub(super) is_log: bool,
    pub(super) rule: RuleNumber,
}

impl Key {
    pub(super) fn print(&self) -> Print {
        Print::of(self.fingerprint)
    }

    /// The key with this state.
    pub(super) fn slot(&self, band: &Band, cell: &Cell) -> Slot {
        let print = self.print();
        Slot {
            tag: print.tag(),
            state: State::new(print, self.rule, band.imprint(), cell),
        }
    }
}

impl Table {
    pub(super) fn new(max_keys: usize, retention: Retention) -> Self {
        let unlimited = retention == Retention::Forever;
        let made_for = if unlimited { super::DEFAULT_MAX_KEYS } else { max_keys.max(1) };
        let shards = (made_for / KEYS_PER_SHARD)
            .next_power_of_two()
            .clamp(1, MOST_SHARDS);
        let random = || RandomState::new().hash_one(0);
        Self {
            hasher: SipHasher13::new_with_keys(random(), random()),
            shards: (0..shards).map(|_| Shard::default()).collect(),
            logs: (0..shards.div_ceil(16)).map(|_| Mutex::default()).collect(),
            live: AtomicUsize::new(0),
            max_keys: max_keys.max(1),
            retention,
            sizes: Sizes::new(made_for.div_ceil(shards), unlimited),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// The fingerprint of a subject.
    pub(super) fn fingerprint(&self, subject: &[u8]) -> u128 {
        self.hasher.hash(subject).as_u128()
    }

    /// The key of a band of the subject with this fingerprint.
    pub(super) fn key(&self, subject: u128, rule: RuleNumber, band: &Band) -> Key {
        let fingerprint = subject ^ band.tag();
        let is_log = band.limit().algorithm() == Algorithm::SlidingLog;
        // From bits that the print does not keep.
        let spread = fingerprint as usize;
        let shard = if is_log {
            spread % self.logs.len()
        } else {
            spread & (self.shards.len() - 1)
        };
        Key {
            fingerprint,
            shard: shard as u32,
            is_log,
            rule,
        }
    }

    /// The lines that a key belongs to, and which of them is its own.
    pub(super) fn line_of(&self, key: &Key) -> (&Shard, &Line, usize) {
        let shard = &self.shards[key.shard as usize];
        let lines = shard.lines();
        let index = Shard::line_of(key.print(), lines);
        (shard, &lines[index], index)
    }

    /// Judges one key and charges it if it passes.
    pub(super) fn take(&self, key: &Key, band: &Band, now: Timestamp, cost: u64) -> Verdict {
        if !key.is_log
            && let Some(verdict) = self.take_in_line(key, band, now, cost)
        {
            return verdict;
        }
        let mut held = Held::new(self, std::slice::from_ref(key));
        let assessed = held.assess(key, band, now, cost, Mode::Take);
        if assessed.verdict().passes {
            held.charge(key, band, now, &assessed);
        } else {
            held.correct(key, band, &assessed);
        }
        *assessed.verdict()
    }

    /// What [`Table::take`] does for a key that is in its line, unless somebody
    /// else is at it. A refusal writes nothing at all.
    fn take_in_line(
        &self,
        key: &Key,
        band: &Band,
        now: Timestamp,
        cost: u64,
    ) -> Option<Verdict> {
        let (_, line, _) = self.line_of(key);
        let print = key.print();
        let Glance { state, version } = line.glance(print)?;
        if version.is_retired() {
            return None;
        }
        let cell = state?.cell(band.imprint());
        let assessment = Cell::assess(band.limit(), cell, now, cost, Mode::Take);
        if let Some(cell) = assessment.to_write() {
            let mut line = line.lock_unchanged(version)?;
            let slot = line.find(print)?;
            line.set_state(slot, State::new(print, key.rule, band.imprint(), cell));
        }
        Some(assessment.verdict)
    }

    /// Forgets every key of a rule; says how many.
    pub(super) fn remove_rule(&self, rule: RuleNumber) -> u64 {
        let mut gone = 0;
        for shard in &self.shards {
            gone += self.remove_rule_in(shard, rule);
        }
        for shard in &self.logs {
            let here = lock(shard).remove_rule(rule);
            self.forget(here);
            gone += here;
        }
        gone as u64
    }

    fn remove_rule_in(&self, shard: &Shard, rule: RuleNumber) -> usize {
        let mut gone = 0;
        'again: loop {
            let Some(lines) = shard.lines_if_any() else {
                return gone;
            };
            for line in lines {
                let mut line = line.lock();
                if line.is_retired() {
                    // The shard has grown meanwhile; what went is gone for good.
                    continue 'again;
                }
                let wanted: Vec<usize> = line
                    .slots()
                    .filter(|(_, slot)| slot.state.rule() == rule.get())
                    .map(|(index, _)| index)
                    .collect();
                for index in wanted {
                    line.clear(index);
                    self.forget(1);
                    gone += 1;
                }
            }
            let here = lock(&shard.overflow).retain(|state| state.rule() != rule.get());
            self.forget(here);
            return gone + here;
        }
    }

    /// Counts one more key, if there is room for it.
    pub(super) fn try_count(&self) -> bool {
        let counted = self
            .live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
                (live < self.max_keys || self.retention == Retention::Forever).then_some(live + 1)
            });
        counted.is_ok()
    }

    /// Counts one more key, room or not.
    pub(super) fn count(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn forget(&self, keys: usize) {
        if keys > 0 {
            self.live.fetch_sub(keys, Ordering::Relaxed);
        }
    }

    /// Whether a state may be forgotten at `now` without a loss.
    pub(super) fn is_spent(&self, state: State, now: Timestamp) -> bool {
        self.retention == Retention::UntilFull && state.is_spent(now)
    }
}

/// A panic elsewhere leaves nothing half-written: each write is one assignment.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
