//! The clocks of the telemetry.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quanta::Instant;

/// Returns the current time for measuring durations. Where the processor's cycle counter is
/// reliable, it reads that, which is cheaper than the system clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the time since the first call, by a monotonic clock.
pub(super) fn monotonic() -> Duration {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    STARTED.get_or_init(Instant::now).elapsed()
}

/// Returns the time since 1970; zero if the clock is before that.
#[expect(
    clippy::disallowed_methods,
    reason = "only for reports; no decision depends on it"
)]
pub(crate) fn unix_time() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Returns whole nanoseconds, saturating at 584 years.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns whole microseconds, saturating.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
