//! Waits that do not all end at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between half of `span` and all of it.
pub(crate) fn jitter(span: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1024;
    // Below 1024, so it fits.
    span / 2 + span / 2048 * random as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_differ_and_stay_within_their_bounds() {
        let span = Duration::from_millis(100);
        let waits: Vec<_> = (0..100).map(|_| jitter(span)).collect();
        assert!(waits.iter().all(|wait| (span / 2..=span).contains(wait)));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }
}
