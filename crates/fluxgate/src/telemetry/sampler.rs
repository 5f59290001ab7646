//! A rate limit for log lines about frequent events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::clock;

/// Allows a burst of events, and then a steady rate (GCRA). Refusing an event only reads
/// a number that rarely changes, so threads do not contend for it.
#[derive(Debug)]
pub(super) struct Sampler {
    /// When the burst is available again in full, in µs since the service started.
    full_at: AtomicU64,
    /// The time that one event takes to be replenished, in µs.
    interval: u64,
    /// How far `full_at` may lie ahead, in µs.
    tolerance: u64,
}

impl Sampler {
    pub(super) const fn new(burst: u64, per_second: u64) -> Self {
        let interval = 1_000_000 / per_second;
        Self {
            full_at: AtomicU64::new(0),
            interval,
            tolerance: burst * interval,
        }
    }

    /// Returns whether an event is allowed at this time since the start of the service.
    pub(super) fn allows(&self, uptime: Duration) -> bool {
        let now = clock::micros(uptime);
        let full_at = self.full_at.load(Ordering::Relaxed);
        let next = full_at.max(now) + self.interval;
        // Of two concurrent events, only one passes.
        next <= now + self.tolerance
            && self
                .full_at
                .compare_exchange(full_at, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_a_steady_rate() {
        let sampler = Sampler::new(5, 10);
        let passed = |from: u64, until: u64| {
            let mut times = (from..until).step_by(1_000).map(Duration::from_micros);
            std::iter::from_fn(|| times.next())
                .filter(|now| sampler.allows(*now))
                .count()
        };
        assert_eq!(passed(0, 1_000), 1);
        assert_eq!(passed(1_000, 50_000), 4);
        assert_eq!(passed(50_000, 1_050_000), 10);
        // A long pause does not enlarge the burst.
        let late = Duration::from_secs(3600);
        assert_eq!((0..100).filter(|_| sampler.allows(late)).count(), 5);
    }
}
