//! All shards, and how a key is found in them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Retention;
use super::held::{Held, least_loss};
use super::line::Line;
use super::shard::{Shard, Sizes};
use super::slot::{Print, Slot, State};
use crate::algorithm::{Cell, Log, Mode, Verdict};
use crate::fingerprint::Fingerprinter;
use crate::limit::Algorithm;
use crate::rules::{Band, RuleNumber};
use crate::time::Timestamp;

/// About this many keys share a shard when the table is full.
const KEYS_PER_SHARD: usize = 2048;
const MOST_SHARDS: usize = 512;

/// All keys.
#[derive(Debug)]
pub(super) struct Table {
    /// Secret, so that nobody can make keys that meet.
    fingerprinter: Fingerprinter,
    pub(super) shards: Box<[Shard]>,
    live: AtomicUsize,
    max_keys: usize,
    pub(super) retention: Retention,
    pub(super) sizes: Sizes,
}

/// A counter: one band of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) print: Print,
    pub(super) shard: u32,
    pub(super) is_log: bool,
    pub(super) rule: RuleNumber,
}

impl Key {
    /// The key with this state.
    pub(super) fn slot(&self, band: &Band, cell: &Cell) -> Slot {
        self.with(State::new(self.print, self.rule, band.imprint(), cell))
    }

    /// The key with the stand-in of its log.
    pub(super) fn slot_of_log(&self, band: &Band, log: &Log) -> Slot {
        self.with(State::of_log(self.print, self.rule, band.imprint(), log))
    }

    fn with(&self, state: State) -> Slot {
        Slot {
            tag: self.print.tag(),
            state,
        }
    }
}

impl Table {
    pub(super) fn new(max_keys: usize, retention: Retention) -> Self {
        let unlimited = retention == Retention::Forever;
        let made_for = if unlimited {
            super::DEFAULT_MAX_KEYS
        } else {
            max_keys.max(1)
        };
        let shards = (made_for / KEYS_PER_SHARD)
            .next_power_of_two()
            .clamp(1, MOST_SHARDS);
        Self {
            fingerprinter: Fingerprinter::random(),
            shards: (0..shards).map(|_| Shard::default()).collect(),
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
    pub(super) fn fingerprint(&self, subject: &[u8]) -> u64 {
        self.fingerprinter.of(subject)
    }

    /// The key of a band of the subject with this fingerprint.
    pub(super) fn key(&self, subject: u64, rule: RuleNumber, band: &Band) -> Key {
        let fingerprint = subject ^ band.tag();
        // From bits that the print does not keep.
        let shard = fingerprint as usize & (self.shards.len() - 1);
        Key {
            print: Print::of(fingerprint),
            shard: shard as u32,
            is_log: band.limit().algorithm() == Algorithm::SlidingLog,
            rule,
        }
    }

    /// Judges one key and charges it if it passes.
    #[inline]
    pub(super) fn take(&self, key: &Key, band: &Band, now: Timestamp, cost: u64) -> Verdict {
        match self.take_in_line(key, band, now, cost) {
            Some(verdict) => verdict,
            None => self.take_elsewhere(key, band, now, cost),
        }
    }

    /// Apart, so that the short way has few registers to save.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(&self, key: &Key, band: &Band, now: Timestamp, cost: u64) -> Verdict {
        if let Some(verdict) = self.take_in_overflow(key, band, now, cost) {
            return verdict;
        }
        let mut held = Held::new(self, std::slice::from_ref(key));
        let assessed = held.assess(0, band, now, cost, Mode::Take);
        if assessed.verdict().passes() {
            held.charge(0, band, now, &assessed);
        } else {
            held.correct(0, band, &assessed);
        }
        *assessed.verdict()
    }

    /// Forgets every key of a rule; says how many.
    pub(super) fn remove_rule(&self, rule: RuleNumber) -> u64 {
        let mut gone = 0;
        for shard in &self.shards {
            gone += self.remove_rule_in(shard, rule);
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

    /// Forgets a cheap key of another shard, for one that has none; says whether
    /// there was one.
    pub(super) fn evict_outside(&self, shard: usize, now: Timestamp) -> bool {
        let others = (1..self.shards.len()).map(|step| (shard + step) % self.shards.len());
        for other in others.map(|index| &self.shards[index]) {
            let lines = other.lines_if_any().unwrap_or_default().iter();
            let cheapest = lines
                .filter_map(Line::try_lock)
                .filter_map(|line| least_loss(&line, now).map(|found| (found, line)))
                .min_by_key(|((loss, ..), _)| *loss);
            if let Some(((_, index, print), mut line)) = cheapest {
                line.clear(index);
                if let Ok(mut overflow) = other.overflow.try_lock() {
                    overflow.remove(print);
                }
                return true;
            }
        }
        false
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
