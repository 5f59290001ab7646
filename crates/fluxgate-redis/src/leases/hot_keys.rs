//! Counts requests by key, roughly, to find those that are worth a lease.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many counts there are. Keys that share one push each other out.
const COUNTS: usize = 4096;
/// A key is hot after so many requests to the store within one lease.
const HOT: u64 = 3;
/// A count has the lowest bits, and above them the key and the time.
const COUNT_BITS: u32 = 8;
const TIME_BITS: u32 = 24;

#[derive(Debug)]
pub(crate) struct HotKeys(Box<[AtomicU64]>);

impl Default for HotKeys {
    fn default() -> Self {
        Self((0..COUNTS).map(|_| AtomicU64::default()).collect())
    }
}

impl HotKeys {
    /// Counts a request, at a time in lives of its lease. Returns whether its key is hot.
    ///
    /// Counts may get lost when several threads count at once, which only delays a lease.
    pub(crate) fn count(&self, key: u64, lives: u64) -> bool {
        let slot = &self.0[key as usize % COUNTS];
        let time = lives & ((1 << TIME_BITS) - 1);
        let tag = (key >> (COUNT_BITS + TIME_BITS)) << TIME_BITS | time;
        let last = slot.load(Ordering::Relaxed);
        let count = match last >> COUNT_BITS == tag {
            true => (last & ((1 << COUNT_BITS) - 1)) + 1,
            false => 1,
        };
        slot.store(tag << COUNT_BITS | count.min(HOT), Ordering::Relaxed);
        count >= HOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_after_some_requests_in_the_same_time() {
        let keys = HotKeys::default();
        let key = 0xdead_beef_0000_0001;
        assert_eq!(
            [7, 7, 8, 8, 8, 8].map(|time| keys.count(key, time)),
            [false, false, false, false, true, true]
        );
        // Another key in the same place begins anew.
        let other = key ^ 1 << 63;
        assert!(!keys.count(other, 8) && !keys.count(key, 8));
    }
}
