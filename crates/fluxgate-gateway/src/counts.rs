//! Counters by route and upstream.
//!
//! Each thread counts on cache lines of its own, so that counting takes no lock and cores do not
//! wait for each other. Readers add the threads up.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use quanta::Instant;

/// The status classes: 1xx to 5xx.
const STATUS_CLASSES: usize = 5;

/// The names of the status classes.
pub const STATUS_CLASS_NAMES: [&str; STATUS_CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The upper bounds of the buckets in nanoseconds. One more bucket has no bound.
pub const DURATION_BOUNDS: [u64; 17] = [
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
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// How long rates look back.
const LONGEST_WINDOW: Duration = Duration::from_secs(60);

/// Counts responses by their status class, and how long they took.
#[derive(Debug)]
pub(crate) struct ResponseCounts(Box<[ThreadCounts]>);

/// The counters of one thread. The last ones are shared by all threads that have none.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadCounts {
    classes: [AtomicU64; STATUS_CLASSES],
    buckets: [AtomicU64; DURATION_BOUNDS.len() + 1],
    /// In nanoseconds.
    sum: AtomicU64,
}

/// The sums over all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseTotals {
    /// The number of responses by status class.
    pub classes: [u64; STATUS_CLASSES],
    /// The number of responses by duration, not cumulative.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    /// The total duration in nanoseconds.
    pub sum_nanos: u64,
}

impl ResponseCounts {
    pub(crate) fn new() -> Self {
        Self((0..=threads()).map(|_| ThreadCounts::default()).collect())
    }

    /// Counts a response.
    pub(crate) fn count(&self, status: u16, took: Duration) {
        let last = self.0.len() - 1;
        let number = thread_number().min(last);
        // Only the last counters have several writers.
        let add = if number < last { add_alone } else { add_shared };
        let counts = &self.0[number];
        let class = usize::from(status / 100).clamp(1, STATUS_CLASSES) - 1;
        add(&counts.classes[class], 1);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // A linear search: most responses are in one of the first buckets.
        let bucket = DURATION_BOUNDS.iter().position(|bound| nanos <= *bound);
        add(&counts.buckets[bucket.unwrap_or(DURATION_BOUNDS.len())], 1);
        add(&counts.sum, nanos);
    }

    /// Returns the number of all responses.
    pub(crate) fn total(&self) -> u64 {
        let classes = self.0.iter().flat_map(|counts| &counts.classes);
        classes.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn totals(&self) -> ResponseTotals {
        let mut totals = ResponseTotals::default();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for counts in &self.0 {
            for (sum, count) in totals.classes.iter_mut().zip(&counts.classes) {
                *sum += get(count);
            }
            for (sum, count) in totals.buckets.iter_mut().zip(&counts.buckets) {
                *sum += get(count);
            }
            totals.sum_nanos = totals.sum_nanos.wrapping_add(get(&counts.sum));
        }
        totals
    }
}

impl ResponseTotals {
    /// Adds the counts of another route or upstream that is shown under the same name.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.classes.iter_mut().zip(other.classes) {
            *sum += count;
        }
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += count;
        }
        self.sum_nanos = self.sum_nanos.wrapping_add(other.sum_nanos);
    }
}

/// Adds to a counter that no other thread writes: without an atomic operation.
fn add_alone(count: &AtomicU64, more: u64) {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(more), Ordering::Relaxed);
}

fn add_shared(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// Returns how many threads have counters of their own: those that serve connections, and a few
/// more.
fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from) + 2)
}

/// Returns the number of this thread, which no other thread has.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let known = NUMBER.get();
    if known != usize::MAX {
        return known;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}

/// Counters at past points in time, to know how much they have grown since. A task samples them
/// each second.
#[derive(Debug)]
pub(crate) struct Samples<const N: usize>(Mutex<VecDeque<(Instant, [u64; N])>>);

impl<const N: usize> Samples<N> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Keeps the counters of this moment.
    pub(crate) fn push(&self, now: Instant, counters: [u64; N]) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |(at, _): &(Instant, _)| now.saturating_duration_since(*at) > LONGEST_WINDOW;
        // One sample before the window remains, to subtract it.
        while samples.len() > 1 && samples.get(1).is_some_and(is_old) {
            samples.pop_front();
        }
        samples.push_back((now, counters));
    }

    /// Returns how much the counters have grown within the window, or since they exist.
    pub(crate) fn growth(&self, now: Instant, window: Duration, counters: [u64; N]) -> [u64; N] {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_before =
            |(at, _): &(Instant, [u64; N])| now.saturating_duration_since(*at) >= window;
        let before = samples.partition_point(is_before).checked_sub(1);
        let before = before
            .and_then(|index| samples.get(index))
            .map_or([0; N], |(_, counters)| *counters);
        std::array::from_fn(|index| counters[index].saturating_sub(before[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_all_threads_are_counted() {
        let counts = ResponseCounts::new();
        // More threads than have counters of their own.
        std::thread::scope(|scope| {
            for _ in 0..3 * threads() {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counts.count(200, Duration::from_micros(100));
                    }
                    counts.count(599, Duration::from_secs(31));
                    counts.count(999, Duration::from_nanos(100_001));
                });
            }
        });
        let threads = 3 * threads() as u64;
        let totals = counts.totals();
        assert_eq!(totals.classes, [0, 1000 * threads, 0, 0, 2 * threads]);
        assert_eq!(counts.total(), 1002 * threads);
        assert_eq!(totals.buckets[..2], [1000 * threads, threads]);
        assert_eq!(totals.buckets.last(), Some(&threads));
        assert_eq!(totals.sum_nanos, threads * (31_100_000_000 + 100_001));
        let mut twice = totals.clone();
        twice.add(&totals);
        assert_eq!(twice.classes[1], 2000 * threads);
    }

    #[test]
    fn growth_is_that_within_the_window() {
        let (samples, start) = (Samples::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let window = Duration::from_secs(10);
        assert_eq!(samples.growth(at(0), window, [3]), [3]);
        for second in 0..200 {
            samples.push(at(second), [second * 2]);
        }
        assert_eq!(samples.growth(at(199), window, [400]), [400 - 2 * 189]);
        assert_eq!(
            samples.growth(at(199), LONGEST_WINDOW, [400]),
            [400 - 2 * 139]
        );
        assert!(samples.0.lock().unwrap().len() <= 62);
    }
}
