//! Each rule's share of the store, and the keys it may evict.
//!
//! The share of a rule is the bound divided by the number of rules that have keys. When
//! the store is full, a rule at or above its share evicts only its own keys, and a rule
//! below its share evicts keys of rules above theirs. There is always such a rule: if none
//! were above its share and one below, the sum would be below the bound. So a rule within
//! its share never loses a key to another rule, not even if a client floods that one.
//!
//! The counts change only when a key is added or removed, never when it is charged.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use crate::key::RuleNumber;

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = 1 << (RuleNumber::BITS - CHUNK_BITS);

/// A count for each rule, and their total. In a cache line of its own, because decisions
/// read the fields next to it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Tally {
    total: AtomicUsize,
    /// The number of rules with a count above 0. It is below 0 for a moment if a decrement
    /// overtakes its increment.
    rules: AtomicIsize,
    /// The counts by rule number, in chunks that are created when needed.
    counts: Box<[OnceLock<Box<[AtomicUsize]>>]>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            total: AtomicUsize::new(0),
            rules: AtomicIsize::new(0),
            counts: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns the total. It includes what is reserved and not yet counted for a rule.
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Adds one to the total, unless it has reached `most`.
    pub(super) fn try_reserve(&self, most: usize) -> bool {
        let one_more = |total| (total < most).then_some(total + 1);
        let reserved = self
            .total
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        reserved.is_ok()
    }

    pub(super) fn reserve(&self, count: usize) {
        self.total.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn release(&self, count: usize) {
        if count > 0 {
            self.total.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// Returns the count of a rule.
    pub(super) fn of(&self, rule: u32) -> usize {
        let chunk = self.counts[rule as usize >> CHUNK_BITS].get();
        chunk.map_or(0, |chunk| {
            chunk[rule as usize % CHUNK].load(Ordering::Relaxed)
        })
    }

    /// Returns the share of a rule in `most`, counting the rule itself.
    pub(super) fn share(&self, most: usize, rule: u32) -> usize {
        let rules = self.rules.load(Ordering::Relaxed).max(0) as usize;
        let rules = rules + usize::from(self.of(rule) == 0);
        most / rules.max(1)
    }

    /// Adds to the count of a rule, not to the total.
    pub(super) fn add(&self, rule: u32, count: usize) {
        if count > 0 && self.count(rule).fetch_add(count, Ordering::Relaxed) == 0 {
            self.rules.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Subtracts from the count of a rule, not from the total.
    pub(super) fn subtract(&self, rule: u32, count: usize) {
        if count > 0 {
            self.update(rule, |known| Some(known.saturating_sub(count)));
        }
    }

    /// Subtracts one from the count of a rule if it is above `least`. Returns whether it
    /// was.
    pub(super) fn subtract_above(&self, rule: u32, least: usize) -> bool {
        self.update(rule, |known| (known > least).then(|| known - 1))
    }

    fn update(&self, rule: u32, change: impl Fn(usize) -> Option<usize>) -> bool {
        let count = self.count(rule);
        let before = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, &change);
        if let Ok(before) = before
            && before > 0
            && change(before) == Some(0)
        {
            self.rules.fetch_sub(1, Ordering::Relaxed);
        }
        before.is_ok()
    }

    fn count(&self, rule: u32) -> &AtomicUsize {
        let chunk = self.counts[rule as usize >> CHUNK_BITS]
            .get_or_init(|| (0..CHUNK).map(|_| AtomicUsize::new(0)).collect());
        &chunk[rule as usize % CHUNK]
    }
}

/// The right to evict keys for a new key of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvictionClaim {
    rule: u32,
    share: usize,
    /// Whether the rule would have more than its share, so that only its own
    /// keys may be evicted.
    own_only: bool,
}

impl EvictionClaim {
    /// Creates the claim of a rule on a store of `most` keys. The new key is already counted,
    /// so all rules together have more than `most` keys, and one of them has more than its
    /// share.
    pub(super) fn new(keys: &Tally, most: usize, rule: u32) -> Self {
        let (count, share) = (keys.of(rule), keys.share(most, rule));
        Self {
            rule,
            share,
            // With more rules than keys the new key may be the rule's only one.
            own_only: count > share && count > 1,
        }
    }

    /// Returns whether a key of `rule` may be evicted.
    pub(super) fn covers(&self, keys: &Tally, rule: u32) -> bool {
        if self.own_only {
            rule == self.rule
        } else {
            keys.of(rule) > self.share
        }
    }

    /// Subtracts a key from the count of `rule`, if it may still be evicted. Returns whether
    /// it may.
    pub(super) fn take(&self, keys: &Tally, rule: u32) -> bool {
        if self.own_only && rule == self.rule {
            keys.subtract(rule, 1);
            return true;
        }
        !self.own_only && keys.subtract_above(rule, self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_bound_divided_by_the_rules_that_have_keys() {
        let tally = Tally::new();
        assert_eq!(tally.share(100, 7), 100);
        tally.add(7, 60);
        tally.add(1 << 19, 40);
        assert_eq!([tally.of(7), tally.of(1 << 19), tally.of(8)], [60, 40, 0]);
        assert_eq!([tally.share(100, 7), tally.share(100, 8)], [50, 33]);
        tally.subtract(7, 60);
        assert_eq!([tally.share(100, 7), tally.share(100, 1 << 19)], [50, 100]);
        tally.subtract(7, 1);
        assert_eq!([tally.of(7), tally.share(100, 1 << 19)], [0, 100]);
    }

    #[test]
    fn a_claim_covers_own_keys_or_those_above_the_share() {
        let tally = Tally::new();
        tally.add(1, 70);
        tally.add(2, 30);
        let [large, small] = [1, 2].map(|rule| EvictionClaim::new(&tally, 100, rule));
        assert!(large.covers(&tally, 1) && !large.covers(&tally, 2));
        assert!(small.covers(&tally, 1) && !small.covers(&tally, 2));
        for _ in 50..70 {
            assert!(small.take(&tally, 1));
        }
        assert!(!small.take(&tally, 1), "down to the share and no further");
        assert_eq!(tally.of(1), 50);
        // With more rules than keys, every rule is above its share of zero.
        tally.add(3, 1);
        let newcomer = EvictionClaim::new(&tally, 2, 3);
        assert!(newcomer.covers(&tally, 1));
    }
}
