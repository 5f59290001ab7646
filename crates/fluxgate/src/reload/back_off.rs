//! Waits that grow and differ, so that not everybody comes back at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);

/// How long to wait before the next try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    next: Duration,
    longest: Duration,
}

impl BackOff {
    /// Never waits longer than this.
    pub(crate) fn up_to(longest: Duration) -> Self {
        let next = FIRST.min(longest);
        Self { next, longest }
    }

    /// The next wait: between half of what it might be and all of it.
    pub(crate) fn wait(&mut self) -> Duration {
        let span = self.next;
        self.next = (span * 2).min(self.longest);
        let random = RandomState::new().hash_one(0) % 1024;
        // Below 1024, so it fits.
        span / 2 + span / 2048 * random as u32
    }

    /// All is well; the next wait is the first again.
    pub(crate) fn reset(&mut self) {
        *self = Self::up_to(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_begin_again() {
        let mut back_off = BackOff::up_to(Duration::from_millis(300));
        for most in [50, 100, 200, 300, 300] {
            let (wait, most) = (back_off.wait(), Duration::from_millis(most));
            assert!((most / 2..=most).contains(&wait), "{wait:?} of {most:?}");
        }
        back_off.reset();
        assert!(back_off.wait() <= FIRST);
    }
}
