//! The one script.
//!
//! Its text is put together from the pieces in `src/lua`. The server knows it by
//! its SHA-1, so releases with different scripts run side by side; what they
//! share, the names and the states of keys, has a version of its own in
//! [`crate::key_name`].

use std::sync::LazyLock;

/// A script as the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    /// Its text, for `EVAL` and `SCRIPT LOAD`.
    pub(crate) text: &'static str,
    /// Its SHA-1 in hexadecimal, for `EVALSHA`.
    pub(crate) sha1: String,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self {
            text,
            sha1: sha1_smol::Sha1::from(text).digest().to_string(),
        }
    }
}

macro_rules! with_clock {
    ($clock:literal) => {
        concat!(
            include_str!("lua/prelude.lua"),
            include_str!($clock),
            include_str!("lua/wire.lua"),
            include_str!("lua/bucket.lua"),
            // One function that makes all others; see the prelude.
            "function others()\n",
            include_str!("lua/others.lua"),
            include_str!("lua/bucket_back.lua"),
            include_str!("lua/window.lua"),
            include_str!("lua/fixed_window.lua"),
            include_str!("lua/sliding_window.lua"),
            include_str!("lua/sliding_log.lua"),
            include_str!("lua/requests.lua"),
            "end\n",
            include_str!("lua/driver.lua"),
        )
    };
}

/// Decides by the server's clock.
pub(crate) static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_clock!("lua/clock.lua")));

/// Decides at the time it is told, and lets nothing expire.
#[cfg(feature = "injected-time")]
pub(crate) static TEST_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_clock!("lua/test_clock.lua")));

/// Whose clock a store goes by: the server's, but for tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeSource {
    #[cfg(feature = "injected-time")]
    pub(crate) clock: Option<fluxgate_core::ManualClock>,
}

impl TimeSource {
    /// The script for it.
    pub(crate) fn script(&self) -> &'static Script {
        #[cfg(feature = "injected-time")]
        if self.clock.is_some() {
            return &TEST_SCRIPT;
        }
        &SCRIPT
    }

    /// What the script must be told.
    pub(crate) fn now(&self) -> Option<String> {
        #[cfg(feature = "injected-time")]
        if let Some(clock) = &self.clock {
            let now = fluxgate_core::Clock::now(clock).micros();
            return Some(now.to_string());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_no_other_clock_than_the_servers() {
        let text = SCRIPT.text;
        assert_eq!(text.matches("call('TIME')").count(), 1);
        // Its one argument is the checks; what else comes is not looked at.
        assert_eq!(text.matches("ARGV").count(), 1);
        assert_eq!(text.matches("ARGV[1]").count(), 1);
        // Nothing but the look at the clock gives `now` a value.
        let assignments = text.lines().filter(|line| line.contains("now ="));
        assert_eq!(
            assignments.collect::<Vec<_>>(),
            ["local now = time[1] * 1000000 + time[2]"]
        );
        assert!(TEST_SCRIPT.text.contains("ARGV[2]"));
        assert_ne!(SCRIPT.sha1, TEST_SCRIPT.sha1);
    }

    #[test]
    fn the_sha1_is_in_lower_case_hexadecimal() {
        assert_eq!(
            Script::new("return 1").sha1,
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        );
    }
}
