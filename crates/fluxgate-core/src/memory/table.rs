//! All shards, and how a key is found in them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Retention;
use super::held::Held;
use super::shard::{Shard, Sizes};
use super::shares::{Claim, Tally};
use super::slot::{Print, Slot, State};
use crate::algorithm::{Cell, Log, Mode, Verdict};
use crate::fingerprint::Fingerprinter;
use crate::limit::Algorithm;
use crate::rules::{Band, RuleNumber};
use crate::time::Timestamp;

/// About this many keys share a shard when the table is full.
const KEYS_PER_SHARD: usize = 2048;
const MOST_SHARDS: usize = 512;
/// How long after a sweep for spent logs there is no other, in microseconds.
const SWEEP_PAUSE: u64 = 1000;

/// All keys.
#[derive(Debug)]
pub(super) struct Table {
    /// Secret, so that nobody can make keys that meet.
    fingerprinter: Fingerprinter,
    pub(super) shards: Box<[Shard]>,
    /// The keys of each rule.
    pub(super) keys: Tally,
    max_keys: usize,
    /// The log events of each rule.
    pub(super) events: Tally,
    pub(super) max_log_events: usize,
    /// How many sweeps for spent logs there were, and when the last one was.
    sweeps: AtomicUsize,
    swept_at: AtomicU64,
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
            keys: Tally::new(),
            max_keys: max_keys.max(1),
            events: Tally::new(),
            max_log_events: super::DEFAULT_MAX_LOG_EVENTS,
            sweeps: AtomicUsize::new(0),
            swept_at: AtomicU64::new(0),
            retention,
            sizes: Sizes::new(made_for.div_ceil(shards), unlimited),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.total()
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
                    self.forget(rule.get(), 1);
                    gone += 1;
                }
            }
            let mut overflow = lock(&shard.overflow);
            let here = overflow.retain(|state| state.rule() != rule.get());
            overflow.retain_logs(&self.events, |of, _| of != rule.get());
            self.forget(rule.get(), here);
            return gone + here;
        }
    }

    /// Reserves room for one more key, if there is any.
    pub(super) fn try_reserve(&self) -> bool {
        let most = match self.retention {
            Retention::UntilFull => self.max_keys,
            Retention::Forever => usize::MAX,
        };
        self.keys.try_reserve(most)
    }

    /// Whether there are more keys than there should be.
    pub(super) fn is_over(&self) -> bool {
        self.retention == Retention::UntilFull && self.keys.total() > self.max_keys
    }

    /// Takes keys of a rule, which are there no more, off the counts.
    pub(super) fn forget(&self, rule: u32, keys: usize) {
        self.keys.release(keys);
        self.keys.subtract(rule, keys);
    }

    /// Takes a key off the counts if it is spent; returns whether it is.
    pub(super) fn forget_spent(&self, state: State, now: Timestamp) -> bool {
        let is_spent = self.is_spent(state, now);
        if is_spent {
            self.forget(state.rule(), 1);
        }
        is_spent
    }

    /// What may be evicted for a new key of a rule.
    pub(super) fn claim(&self, rule: RuleNumber) -> Claim {
        Claim::new(&self.keys, self.max_keys, rule.get())
    }

    pub(super) fn may_evict(&self, claim: &Claim, state: State, now: Timestamp) -> bool {
        claim.covers(&self.keys, state.rule()) || self.is_spent(state, now)
    }

    /// Takes a key off its rule's count, if it may still be evicted.
    pub(super) fn take_key(&self, claim: &Claim, state: State, now: Timestamp) -> bool {
        if self.is_spent(state, now) {
            self.keys.subtract(state.rule(), 1);
            return true;
        }
        claim.take(&self.keys, state.rule())
    }

    /// Whether a rule may have as many log events as it has. The last quarter is
    /// for rules within their share.
    pub(super) fn has_room_for_events(&self, rule: u32) -> bool {
        if self.retention == Retention::Forever {
            return true;
        }
        let (total, most) = (self.events.total(), self.max_log_events);
        let is_within_share = || self.events.of(rule) <= self.events.share(most, rule);
        total <= most && (total <= most - most / 4 || is_within_share())
    }

    /// The shard to sweep for spent logs, unless one has just been swept.
    pub(super) fn next_to_sweep(&self, now: Timestamp) -> Option<u32> {
        let last = self.swept_at.load(Ordering::Relaxed);
        if now.micros().abs_diff(last) < SWEEP_PAUSE {
            return None;
        }
        let claimed = self.swept_at.compare_exchange(
            last,
            now.micros(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        claimed.ok()?;
        let sweep = self.sweeps.fetch_add(1, Ordering::Relaxed);
        Some((sweep % self.shards.len()) as u32)
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
