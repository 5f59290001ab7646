//! Waiting by polling a condition.

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
}
