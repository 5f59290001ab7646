//! The clock that times leases.
//!
//! The server counts the life of a lease while this machine sleeps, so this clock must run then,
//! too. On Linux it is `CLOCK_BOOTTIME`; the standard library reads `CLOCK_MONOTONIC`, which
//! stops. On systems without such a clock, no units are leased.

/// Later than the end of any lease, and far from an overflow.
const NEVER: u64 = 1 << 62;

/// A clock that does not stop while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseClock {
    /// When it was started; `None` if the system has no such clock.
    began: Option<u64>,
}

impl LeaseClock {
    pub(crate) fn start() -> Self {
        Self {
            began: boot_micros(),
        }
    }

    /// Returns whether the system has such a clock.
    pub(crate) fn is_available(&self) -> bool {
        self.began.is_some()
    }

    /// Returns the microseconds since it was started; without such a clock, a time when all
    /// leases have ended.
    pub(crate) fn now(&self) -> u64 {
        match (self.began, boot_micros()) {
            (Some(began), Some(now)) => now.saturating_sub(began),
            _ => NEVER,
        }
    }
}

/// Returns the microseconds since the machine was started.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_micros() -> Option<u64> {
    use rustix::time::{DynamicClockId, clock_gettime_dynamic};

    let now = clock_gettime_dynamic(DynamicClockId::Boottime).ok()?;
    let seconds = u64::try_from(now.tv_sec).ok()?;
    let nanos = u64::try_from(now.tv_nsec).ok()?;
    Some(seconds * 1_000_000 + nanos / 1_000)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_micros() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_leases_have_ended_without_a_clock() {
        let clock = LeaseClock { began: None };
        assert!(!clock.is_available());
        assert_eq!(clock.now(), NEVER);
    }

    /// The first number of `/proc/uptime` includes the time in which the machine slept.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_counts_from_the_start_of_the_machine() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let (seconds, hundredths) = text.split_once(' ').unwrap().0.split_once('.').unwrap();
            let [seconds, hundredths] = [seconds, hundredths].map(|text| text.parse::<u64>());
            seconds.unwrap() * 1_000_000 + hundredths.unwrap() * 10_000
        };
        let before = uptime();
        let shown = boot_micros().unwrap();
        let after = uptime();
        assert!((before..=after + 10_000).contains(&shown), "{shown}");
    }
}
