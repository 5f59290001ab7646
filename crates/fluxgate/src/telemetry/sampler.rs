//! How many lines there may be of things that happen often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::clock;

/// Lets so many pass at once, and then one every so often. To refuse is a look
/// at a number that hardly ever changes.
#[derive(Debug)]
pub(super) struct Sampler {
    /// When everything that has passed is paid for, in µs since the service began.
    paid: AtomicU64,
    /// What one costs, in µs.
    each: u64,
    /// How far ahead may be paid for, in µs.
    most: u64,
}

impl Sampler {
    pub(super) const fn new(at_once: u64, a_second: u64) -> Self {
        let each = 1_000_000 / a_second;
        Self {
            paid: AtomicU64::new(0),
            each,
            most: at_once * each,
        }
    }

    /// Whether one may pass, `now` after the service began.
    pub(super) fn pass(&self, now: Duration) -> bool {
        let now = clock::micros(now);
        let paid = self.paid.load(Ordering::Relaxed);
        let next = paid.max(now) + self.each;
        // Whoever is second of two at the same moment is too many.
        next <= now + self.most
            && self
                .paid
                .compare_exchange(paid, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_at_once_and_then_so_many_a_second() {
        let sampler = Sampler::new(5, 10);
        let passed = |from: u64, until: u64| {
            let mut times = (from..until).step_by(1_000).map(Duration::from_micros);
            std::iter::from_fn(|| times.next())
                .filter(|now| sampler.pass(*now))
                .count()
        };
        assert_eq!(passed(0, 1_000), 1);
        assert_eq!(passed(1_000, 50_000), 4);
        assert_eq!(passed(50_000, 1_050_000), 10);
        // However long nothing happened, it is no more at once.
        let late = Duration::from_secs(3600);
        assert_eq!((0..100).filter(|_| sampler.pass(late)).count(), 5);
    }
}
