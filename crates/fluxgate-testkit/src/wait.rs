//! Waiting by polling a condition.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The timeout of every wait. It is generous because the machine may be busy.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(10);

/// Polls until `poll` returns a value. `what` describes the event in the panic message.
///
/// # Panics
/// On timeout.
#[track_caller]
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(now() < end, "timed out after {WAIT_TIMEOUT:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// Polls until `poll` returns `true`.
///
/// # Panics
/// On timeout.
#[track_caller]
pub fn wait_until(what: &str, mut poll: impl FnMut() -> bool) {
    wait_for(what, || poll().then_some(()));
}

/// Measures the time in which this process ran. Time in which the machine let it wait, for
/// example because it was stopped or because other processes ran, does not count.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: Instant,
    /// The time that the process had waited before.
    stalled: Duration,
}

impl Stopwatch {
    /// Starts measuring.
    pub fn start() -> Self {
        let start = now();
        let stalled = stalled(start);
        Self { start, stalled }
    }

    /// Returns the time since the start without the time that the process waited.
    pub fn elapsed(&self) -> Duration {
        let now = now();
        let stalled = stalled(now).saturating_sub(self.stalled);
        now.duration_since(self.start).saturating_sub(stalled)
    }
}

/// How long the process has waited, and when its clock thread ran last.
#[derive(Debug)]
struct Stalls {
    total: Duration,
    last_tick: Instant,
}

const TICK: Duration = Duration::from_millis(5);
/// A tick that is not later than this counts as on time.
const ON_TIME: Duration = Duration::from_millis(20);

impl Stalls {
    /// Returns the time since the last tick that is more than a tick takes.
    fn pending(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_tick)
            .saturating_sub(ON_TIME)
    }
}

/// Returns how long this process has waited up to `now`, by a thread that does nothing but
/// sleep and look at the clock.
fn stalled(now: Instant) -> Duration {
    static STALLS: OnceLock<Mutex<Stalls>> = OnceLock::new();
    let stalls = STALLS.get_or_init(|| {
        thread::spawn(tick);
        Mutex::new(Stalls {
            total: Duration::ZERO,
            last_tick: now,
        })
    });
    fn tick() {
        loop {
            thread::sleep(TICK);
            if let Some(stalls) = STALLS.get() {
                let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
                let now = self::now();
                let pending = stalls.pending(now);
                stalls.total += pending;
                stalls.last_tick = now;
            }
        }
    }
    let stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
    stalls.total + stalls.pending(now)
}

/// Runs `work` and measures the time it takes.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, start.elapsed())
}

/// Returns the current time.
#[expect(
    clippy::disallowed_methods,
    reason = "real servers need real time; this is the only place that reads it"
)]
pub fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_polls_until_there_is_a_value() {
        let mut polls = 0;
        let value = wait_for("the third poll", || {
            polls += 1;
            (polls == 3).then_some("here")
        });
        assert_eq!((value, polls), ("here", 3));
    }

    #[test]
    fn the_time_beyond_a_tick_counts_as_stalled() {
        let last_tick = now();
        let stalls = Stalls {
            total: Duration::ZERO,
            last_tick,
        };
        assert_eq!(stalls.pending(last_tick + ON_TIME), Duration::ZERO);
        let second = Duration::from_secs(1);
        assert_eq!(stalls.pending(last_tick + ON_TIME + second), second);
    }

    #[test]
    fn a_stopwatch_measures_at_most_the_time_that_passes() {
        let start = now();
        let watch = Stopwatch::start();
        wait_until("some time is measured", || watch.elapsed() >= 2 * ON_TIME);
        assert!(watch.elapsed() <= start.elapsed());
    }
}
