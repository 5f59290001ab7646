//! Waiting by looking, never by sleeping for as long as it might take.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything is waited for: far more than it needs, because the machine
/// may be busy with other tests.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(10);

/// Looks again and again until there is an answer.
///
/// # Panics
/// If there is none after [`WAIT_TIMEOUT`]; `what` says what was waited for.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + WAIT_TIMEOUT;
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(now() < end, "waited {WAIT_TIMEOUT:?} in vain: {what}");
        thread::sleep(PAUSE);
    }
}

/// Looks again and again until it is true.
///
/// # Panics
/// As [`wait_for`].
#[track_caller]
pub fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    wait_for(what, || look().then_some(()));
}

/// Does something and tells how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let done = work();
    (done, start.elapsed())
}

/// The time, for those who measure real servers.
#[expect(
    clippy::disallowed_methods,
    reason = "real servers need real time; the one place that looks"
)]
pub fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_until_there_is_an_answer() {
        let mut looks = 0;
        let answer = wait_for("the third look", || {
            looks += 1;
            (looks == 3).then_some("here")
        });
        assert_eq!((answer, looks), ("here", 3));
    }
}
