//! The table of all shards.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::entry::{Fingerprint, Key, State};
use super::shard::{Shard, ShardSizes};
use super::shares::{EvictionClaim, Tally};
use crate::band::Band;
use crate::key::{Fingerprinter, RuleNumber};
use crate::limit::Algorithm;
use crate::time::Timestamp;

/// The default bound on keys.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

/// The default bound on the events of sliding logs and the holds that have slots. They take as much memory as
/// [`DEFAULT_MAX_KEYS`], and up to twice as much.
pub const DEFAULT_MAX_LOG_EVENTS: usize = 4_000_000;

/// The approximate number of keys in a shard when the table is full.
const KEYS_PER_SHARD: usize = 2048;
const MOST_SHARDS: usize = 512;
/// The time between two sweeps for expired lists, in microseconds.
const SWEEP_PAUSE: u64 = 1000;

/// When a key may be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Once its quota is full again; before that only if there are too many keys. Then a
    /// rule that has its share of the store evicts its own keys, and another rule those of
    /// rules that have more than theirs, starting with the cheapest.
    #[default]
    UntilFull,
    /// Never: for simulations, where the clock may go back by years.
    Forever,
}

/// All keys.
#[derive(Debug)]
pub(super) struct Table {
    /// Secret, so that clients cannot construct keys that collide.
    fingerprinter: Fingerprinter,
    pub(super) shards: Box<[Shard]>,
    /// The keys of each rule.
    pub(super) keys: Tally,
    max_keys: usize,
    /// The items of the lists of each rule: events of logs, and holds that have slots.
    pub(super) items: Tally,
    pub(super) max_log_events: usize,
    /// The number of sweeps for expired lists, and the time of the last one.
    sweeps: AtomicUsize,
    swept_at: AtomicU64,
    pub(super) retention: Retention,
    pub(super) sizes: ShardSizes,
}

impl Table {
    pub(super) fn new(max_keys: usize, retention: Retention) -> Self {
        let unlimited = retention == Retention::Forever;
        let expected = if unlimited {
            DEFAULT_MAX_KEYS
        } else {
            max_keys.max(1)
        };
        let shards = (expected / KEYS_PER_SHARD)
            .next_power_of_two()
            .clamp(1, MOST_SHARDS);
        Self {
            fingerprinter: Fingerprinter::random(),
            shards: (0..shards).map(|_| Shard::default()).collect(),
            keys: Tally::new(),
            max_keys: max_keys.max(1),
            items: Tally::new(),
            max_log_events: DEFAULT_MAX_LOG_EVENTS,
            sweeps: AtomicUsize::new(0),
            swept_at: AtomicU64::new(0),
            retention,
            sizes: ShardSizes::new(expected.div_ceil(shards), unlimited),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.total()
    }

    /// Returns the hash of a subject.
    pub(super) fn hash(&self, subject: &[u8]) -> u64 {
        self.fingerprinter.of(subject)
    }

    /// Returns the key of a band of the subject with this hash.
    pub(super) fn key(&self, subject: u64, rule: RuleNumber, band: &Band) -> Key {
        let hash = subject ^ band.tag();
        // From bits that the fingerprint does not contain.
        let shard = hash as usize & (self.shards.len() - 1);
        Key {
            fingerprint: Fingerprint::of(hash),
            shard: shard as u32,
            is_list: matches!(
                band.limit().algorithm(),
                Algorithm::SlidingLog | Algorithm::Concurrency
            ),
            rule,
        }
    }

    /// Deletes every key of a rule. Returns how many.
    pub(super) fn remove_rule(&self, rule: RuleNumber) -> u64 {
        let mut deleted = 0;
        for shard in &self.shards {
            deleted += self.remove_rule_in(shard, rule);
        }
        deleted as u64
    }

    fn remove_rule_in(&self, shard: &Shard, rule: RuleNumber) -> usize {
        let mut deleted = 0;
        'again: loop {
            let Some(lines) = shard.lines_if_any() else {
                return deleted;
            };
            for line in lines {
                let mut line = line.lock();
                if line.is_retired() {
                    // The shard has grown since. Deleted keys were not moved.
                    continue 'again;
                }
                let wanted: Vec<usize> = line
                    .entries()
                    .filter(|(_, entry)| entry.state.rule() == rule.get())
                    .map(|(index, _)| index)
                    .collect();
                for index in wanted {
                    line.clear(index);
                    self.release(rule.get(), 1);
                    deleted += 1;
                }
            }
            let mut overflow = shard.overflow.lock();
            let here = overflow.retain(|state| state.rule() != rule.get());
            overflow.retain_lists(&self.items, |of, _| of != rule.get());
            self.release(rule.get(), here);
            return deleted + here;
        }
    }

    /// Reserves room for one more key. Returns whether there is any.
    pub(super) fn try_reserve(&self) -> bool {
        let most = match self.retention {
            Retention::UntilFull => self.max_keys,
            Retention::Forever => usize::MAX,
        };
        self.keys.try_reserve(most)
    }

    /// Returns whether there are more keys than the bound.
    pub(super) fn is_over(&self) -> bool {
        self.retention == Retention::UntilFull && self.keys.total() > self.max_keys
    }

    /// Subtracts deleted keys of a rule from the counts.
    pub(super) fn release(&self, rule: u32, keys: usize) {
        self.keys.release(keys);
        self.keys.subtract(rule, keys);
    }

    /// Subtracts a key from the counts if it is expired. Returns whether it is.
    pub(super) fn release_expired(&self, state: State, now: Timestamp) -> bool {
        let is_expired = self.is_expired(state, now);
        if is_expired {
            self.release(state.rule(), 1);
        }
        is_expired
    }

    /// Returns which keys may be evicted for a new key of a rule.
    pub(super) fn claim(&self, rule: RuleNumber) -> EvictionClaim {
        EvictionClaim::new(&self.keys, self.max_keys, rule.get())
    }

    pub(super) fn may_evict(&self, claim: &EvictionClaim, state: State, now: Timestamp) -> bool {
        claim.covers(&self.keys, state.rule()) || self.is_expired(state, now)
    }

    /// Subtracts a key from its rule's count, if it may still be evicted. Returns whether it
    /// may.
    pub(super) fn claim_key(&self, claim: &EvictionClaim, state: State, now: Timestamp) -> bool {
        if self.is_expired(state, now) {
            self.keys.subtract(state.rule(), 1);
            return true;
        }
        claim.take(&self.keys, state.rule())
    }

    /// Returns whether a rule may have as many list items as it has. The last quarter is
    /// reserved for rules within their share.
    pub(super) fn has_room_for_items(&self, rule: u32) -> bool {
        if self.retention == Retention::Forever {
            return true;
        }
        let (total, most) = (self.items.total(), self.max_log_events);
        let is_within_share = || self.items.of(rule) <= self.items.share(most, rule);
        total <= most && (total <= most - most / 4 || is_within_share())
    }

    /// Returns the shard to sweep for expired lists, unless one has just been swept.
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

    /// Returns whether a state may be deleted at `now` without losing anything.
    pub(super) fn is_expired(&self, state: State, now: Timestamp) -> bool {
        self.retention == Retention::UntilFull && state.is_expired(now)
    }
}
