//! A histogram of the time that decisions take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::telemetry::clock;

/// A counter that one thread increments and any thread may read.
///
/// So an increment is a plain load and store, without a lock or an atomic operation.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct Tally(AtomicU64);

impl Tally {
    pub(in crate::telemetry) fn add(&self, more: u64) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count.wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper bounds of the buckets in nanoseconds. One more bucket has no bound.
pub(super) const BOUNDS: [u64; 19] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
];

/// The histogram of one thread.
#[derive(Debug, Default)]
pub(super) struct DurationHistogram {
    buckets: [Tally; BOUNDS.len() + 1],
    /// The total time in nanoseconds.
    sum: Tally,
}

/// The sum of the histograms of all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DurationTotals {
    /// The number of decisions in each bucket, not cumulative.
    pub(super) buckets: [u64; BOUNDS.len() + 1],
    /// The total time in nanoseconds.
    pub(super) sum: u64,
}

impl DurationHistogram {
    pub(super) fn add(&self, took: Duration) {
        let took = clock::nanos(took);
        // A linear search: most decisions are in one of the first buckets.
        let bucket = BOUNDS.iter().position(|bound| took <= *bound);
        self.buckets[bucket.unwrap_or(BOUNDS.len())].add(1);
        self.sum.add(took);
    }
}

impl DurationTotals {
    pub(super) fn add(&mut self, durations: &DurationHistogram) {
        for (all, bucket) in self.buckets.iter_mut().zip(&durations.buckets) {
            *all += bucket.get();
        }
        self.sum = self.sum.wrapping_add(durations.sum.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let durations = DurationHistogram::default();
        for nanos in [0, 1_000, 1_001, 1_000_000_000, 1_000_000_001] {
            durations.add(Duration::from_nanos(nanos));
        }
        let mut all = DurationTotals::default();
        all.add(&durations);
        let mut expected = [0; BOUNDS.len() + 1];
        (expected[0], expected[1]) = (2, 1);
        (expected[18], expected[19]) = (1, 1);
        assert_eq!(all.buckets, expected);
        assert_eq!(all.sum, 2_000_002_002);
    }
}
