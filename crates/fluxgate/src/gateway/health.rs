//! Who is put aside for a while because requests to it failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For how long at first, and at most; each time twice as long as before.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Whether a server is put aside, in one word: until when in milliseconds, and
/// in the lowest byte for the how manieth time. 0 is well.
#[derive(Debug, Default)]
pub(super) struct Health(AtomicU64);

/// What may be asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It answers.
    Well,
    /// Its time is over: one request may try.
    Due,
    /// Until then nobody should.
    Aside { until: u64 },
}

impl Health {
    /// How it stands at `now`, in milliseconds.
    pub(super) fn at(&self, now: u64) -> State {
        match unpack(self.0.load(Ordering::Relaxed)) {
            (0, _) => State::Well,
            (_, until) if until <= now => State::Due,
            (_, until) => State::Aside { until },
        }
    }

    /// Takes the one trial that is due. Others wait for what becomes of it, or
    /// for as long again.
    pub(super) fn take_trial(&self, now: u64) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let (times, until) = unpack(before);
        let is_due = times > 0 && until <= now;
        let after = pack(times, now + period(times));
        is_due && self.replace(before, after)
    }

    /// A request got no answer. Many that fail together count once.
    pub(super) fn failed(&self, now: u64, was_trial: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let (times, until) = unpack(before);
        if was_trial || until <= now {
            let times = times.saturating_add(1);
            // Whoever was faster has said the same, or the opposite later.
            self.replace(before, pack(times, now + period(times)));
        }
    }

    /// A request was answered.
    pub(super) fn succeeded(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
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

/// How long it is put aside the so manieth time, in milliseconds.
fn period(times: u8) -> u64 {
    let doubled = u32::from(times).saturating_sub(1).min(16);
    let time = FIRST.saturating_mul(1 << doubled).min(LONGEST);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_put_aside_for_longer_each_time_and_tried_once() {
        let health = Health::default();
        assert_eq!(health.at(0), State::Well);
        let mut now = 500;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let was_trial = health.take_trial(now);
            assert_eq!(was_trial, now > 500);
            health.failed(now, was_trial);
            // Those that were sent before fail with it.
            health.failed(now, false);
            let until = now + seconds * 1000;
            assert_eq!(health.at(until - 1), State::Aside { until });
            assert_eq!(health.at(until), State::Due);
            now = until;
        }
        assert!(health.take_trial(now));
        assert!(!health.take_trial(now));
        // The trial came to nothing: it is due again.
        assert_eq!(health.at(now + 30_000), State::Due);
        health.succeeded();
        assert_eq!(health.at(now), State::Well);
        assert!(!health.take_trial(now));
    }
}
