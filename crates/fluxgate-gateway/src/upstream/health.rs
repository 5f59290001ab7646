//! Passive health: an upstream whose requests fail is ejected for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The duration of the first ejection. It doubles each time, up to the longest.
const FIRST_EJECTION: Duration = Duration::from_secs(1);
const LONGEST_EJECTION: Duration = Duration::from_secs(30);

/// The health of an upstream in one word: the number of consecutive ejections in the lowest
/// byte (0 is healthy), and above it the end of the ejection in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Health(AtomicU64);

/// Whether an upstream may get requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It responds.
    Healthy,
    /// The ejection is over: one request may try.
    Probing,
    /// It gets no requests until then, unless every upstream is ejected.
    Ejected { until: u64 },
}

impl Health {
    /// Returns the state at `now`, in milliseconds.
    pub(super) fn at(&self, now: u64) -> State {
        match unpack(self.0.load(Ordering::Relaxed)) {
            (0, _) => State::Healthy,
            (_, until) if until <= now => State::Probing,
            (_, until) => State::Ejected { until },
        }
    }

    /// Returns whether this request may probe the upstream. Others wait for the result, or
    /// for as long again.
    pub(super) fn start_probe(&self, now: u64) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let (times, until) = unpack(before);
        let is_over = times > 0 && until <= now;
        let after = pack(times, now + ejection(times));
        is_over && self.replace(before, after)
    }

    /// Returns whether requests have failed since the last response, whether or not the ejection
    /// is over.
    pub(super) fn is_ejected(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Records that a request failed. Requests that fail together count once. Returns whether
    /// the upstream was healthy before.
    pub(super) fn failed(&self, now: u64, was_probe: bool) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let (times, until) = unpack(before);
        if !was_probe && until > now {
            return false;
        }
        let after = times.saturating_add(1);
        // A concurrent update has recorded the same, or a later success.
        self.replace(before, pack(after, now + ejection(after))) && times == 0
    }

    /// Records a response. Returns whether the upstream was ejected before.
    pub(super) fn succeeded(&self) -> bool {
        self.is_ejected() && self.0.swap(0, Ordering::Relaxed) != 0
    }

    fn replace(&self, before: u64, after: u64) -> bool {
        let order = Ordering::Relaxed;
        self.0.compare_exchange(before, after, order, order).is_ok()
    }
}

fn pack(times: u8, until: u64) -> u64 {
    until << 8 | u64::from(times)
}

fn unpack(word: u64) -> (u8, u64) {
    (word.to_le_bytes()[0], word >> 8)
}

/// Returns the duration of the nth ejection, in milliseconds.
fn ejection(times: u8) -> u64 {
    let doubled = u32::from(times).saturating_sub(1).min(16);
    let time = FIRST_EJECTION
        .saturating_mul(1 << doubled)
        .min(LONGEST_EJECTION);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejections_double_and_each_ends_with_one_probe() {
        let health = Health::default();
        assert_eq!(health.at(0), State::Healthy);
        let mut now = 500;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let was_probe = health.start_probe(now);
            assert_eq!(was_probe, now > 500);
            health.failed(now, was_probe);
            // Requests that were in flight fail as well.
            health.failed(now, false);
            let until = now + seconds * 1000;
            assert_eq!(health.at(until - 1), State::Ejected { until });
            assert_eq!(health.at(until), State::Probing);
            now = until;
        }
        assert!(health.start_probe(now));
        assert!(!health.start_probe(now));
        // The probe never ended: another may start.
        assert_eq!(health.at(now + 30_000), State::Probing);
        health.succeeded();
        assert_eq!(health.at(now), State::Healthy);
        assert!(!health.start_probe(now));
    }
}
