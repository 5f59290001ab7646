//! What time it is, for those who tell of it.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quanta::Instant;

/// When something begins that is measured. By the processor's cycle counter,
/// where there is a good one: a decision is measured for less than it takes to
/// ask the system for the time once.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time since this was first asked: a clock that never goes back.
pub(super) fn uptime() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

/// The same in whole milliseconds.
pub(crate) fn uptime_millis() -> u64 {
    u64::try_from(uptime().as_millis()).unwrap_or(u64::MAX)
}

/// The time since 1970. A clock that stands before then counts as standing there.
#[expect(
    clippy::disallowed_methods,
    reason = "when something happened is told, and decides nothing"
)]
pub(super) fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Whole nanoseconds; the largest number for what has more, which is 584 years.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole microseconds.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
