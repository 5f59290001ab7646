//! Counts requests by key, roughly, to find keys that are worth a lease.

use std::sync::atomic::{AtomicU64, Ordering};

/// A key has its count in one line. A new key replaces the lowest count of a full line.
const LINES: usize = 2048;
const LINE: usize = 8;
/// A key is hot after this many requests to the server within the span of a lease.
pub(super) const HOT: u64 = 3;
/// An entry has the count in its lowest bits, and above it the time and part of the key.
const COUNT_BITS: u32 = 8;
const TIME_BITS: u32 = 24;

/// Counts of the requests to the server.
#[derive(Debug)]
pub(super) struct HotKeys(Box<[[AtomicU64; LINE]]>);

impl Default for HotKeys {
    fn default() -> Self {
        Self((0..LINES).map(|_| Default::default()).collect())
    }
}

impl HotKeys {
    /// Counts a request, at a time in spans of its lease. Returns whether its key is hot.
    ///
    /// Counts may get lost when several threads count at once, which only delays a lease.
    pub(super) fn count(&self, key: u64, spans: u64) -> bool {
        let time = spans & ((1 << TIME_BITS) - 1);
        let tag = (key >> (COUNT_BITS + TIME_BITS)) << TIME_BITS | time;
        let line = &self.0[key as usize % LINES];
        let mut lowest = (u64::MAX, &line[0]);
        for entry in line {
            let last = entry.load(Ordering::Relaxed);
            let count = last & ((1 << COUNT_BITS) - 1);
            let last_tag = last >> COUNT_BITS;
            if last_tag == tag {
                let count = (count + 1).min(HOT);
                entry.store(tag << COUNT_BITS | count, Ordering::Relaxed);
                return count >= HOT;
            }
            let is_now = last_tag & ((1 << TIME_BITS) - 1) == time;
            let count = if is_now { count } else { 0 };
            if count < lowest.0 {
                lowest = (count, entry);
            }
        }
        lowest.1.store(tag << COUNT_BITS | 1, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another key of the same line.
    fn neighbour(key: u64, number: u64) -> u64 {
        key ^ number << 60
    }

    #[test]
    fn a_key_is_hot_after_some_requests_in_the_same_time() {
        let keys = HotKeys::default();
        let key = 0xdead_beef_0000_0001;
        assert_eq!(
            [7, 7, 8, 8, 8, 8].map(|time| keys.count(key, time)),
            [false, false, false, false, true, true]
        );
    }

    #[test]
    fn keys_of_one_line_get_hot_side_by_side() {
        let keys = HotKeys::default();
        let round = || -> Vec<bool> {
            let line = (0..LINE as u64).map(|number| neighbour(1, number));
            line.map(|key| keys.count(key, 7)).collect()
        };
        assert_eq!(round(), [false; LINE]);
        assert_eq!(round(), [false; LINE]);
        assert_eq!(round(), [true; LINE]);
    }

    #[test]
    fn a_new_key_replaces_the_lowest_of_a_full_line() {
        let keys = HotKeys::default();
        for number in 0..LINE as u64 {
            keys.count(neighbour(1, number), 7);
            if number != 3 {
                keys.count(neighbour(1, number), 7);
            }
        }
        assert!(!keys.count(neighbour(1, 9), 7));
        assert!(keys.count(neighbour(1, 2), 7), "it was counted on");
        keys.count(neighbour(1, 9), 7);
        assert!(keys.count(neighbour(1, 9), 7));
    }
}
