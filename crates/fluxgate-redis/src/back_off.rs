//! Waits between attempts, random so that many processes do not retry at once.

use std::time::Duration;

use fluxgate_core::random;

/// Exponential back-off with jitter.
#[derive(Clone, Copy, Debug)]
pub struct BackOff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl BackOff {
    /// Creates a back-off whose waits double from `first` up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            next: first,
            longest,
        }
    }

    /// Creates a back-off whose waits double from 50 ms up to `longest`.
    pub const fn up_to(longest: Duration) -> Self {
        Self::new(Duration::from_millis(50), longest)
    }

    /// Returns the next wait: a random span between half of the current wait and all of it.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next.min(self.longest);
        self.next = wait * 2;
        jitter(wait)
    }

    /// Starts again with the first wait.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Returns a random span between half of `span` and all of it.
pub(crate) fn jitter(span: Duration) -> Duration {
    let random = random::word() % 1024;
    // Below 1024, so it fits.
    span / 2 + span / 2048 * random as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_start_again() {
        let mut back_off = BackOff::up_to(Duration::from_millis(300));
        for longest in [50, 100, 200, 300, 300] {
            let longest = Duration::from_millis(longest);
            let wait = back_off.next_wait();
            assert!((longest / 2..=longest).contains(&wait), "{wait:?}");
        }
        back_off.reset();
        assert!(back_off.next_wait() <= Duration::from_millis(50));
    }

    #[test]
    fn jitter_varies_within_its_bounds() {
        let span = Duration::from_millis(100);
        let waits: Vec<_> = (0..100).map(|_| jitter(span)).collect();
        assert!(waits.iter().all(|wait| (span / 2..=span).contains(wait)));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }
}
