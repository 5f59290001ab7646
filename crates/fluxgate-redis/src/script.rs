//! The script that decides, concatenated from the files in `src/lua`.
//!
//! The server identifies a script by its SHA-1, so releases with different scripts run side by
//! side. The names and values of keys, which they share, have a version of their own in
//! [`crate::keys`].
//!
//! Calls with lease requests run a longer script, so that other calls do not pay for leases.

use std::sync::LazyLock;

use fluxgate_core::Timestamp;

/// A script and its SHA-1.
#[derive(Debug)]
pub(crate) struct Script {
    /// The text, for `EVAL` and `SCRIPT LOAD`.
    pub(crate) text: &'static str,
    /// The SHA-1 in hexadecimal, for `EVALSHA`.
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

macro_rules! script_of {
    ($clock:literal $(, $declaration:literal, $lease:literal, $lease_driver:literal)?) => {
        concat!(
            include_str!("lua/prelude.lua"),
            include_str!($clock),
            include_str!("lua/wire.lua"),
            include_str!("lua/bucket.lua"),
            $($declaration,)?
            // One function defines the rest; `prelude.lua` says why.
            "function load_slow_path()\n",
            include_str!("lua/slow_path.lua"),
            include_str!("lua/bucket_refund.lua"),
            include_str!("lua/window.lua"),
            include_str!("lua/fixed_window.lua"),
            include_str!("lua/calendar_window.lua"),
            include_str!("lua/sliding_window.lua"),
            include_str!("lua/sliding_log.lua"),
            include_str!("lua/lists.lua"),
            "if has_holds == 1 then\n",
            include_str!("lua/concurrency.lua"),
            include_str!("lua/hold.lua"),
            include_str!("lua/adjust.lua"),
            include_str!("lua/always.lua"),
            include_str!("lua/settle.lua"),
            "end\n",
            $(include_str!($lease),)?
            include_str!("lua/requests.lua"),
            "end\n",
            $(include_str!($lease_driver),)?
            include_str!("lua/driver.lua"),
        )
    };
}

macro_rules! lease_script {
    ($clock:literal) => {
        script_of!(
            $clock,
            "local lease\n",
            "lua/lease.lua",
            "lua/lease_driver.lua"
        )
    };
}

/// The script for production, which reads the server's clock.
pub(crate) static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(script_of!("lua/clock.lua")));

/// The same, for calls with lease requests.
pub(crate) static LEASE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(lease_script!("lua/clock.lua")));

/// The script for tests, which takes the time as an argument. Keys do not expire.
#[cfg(feature = "injected-time")]
pub(crate) static TEST_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(script_of!("lua/test_clock.lua")));

/// The same, for calls with lease requests.
#[cfg(feature = "injected-time")]
pub(crate) static LEASE_TEST_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(lease_script!("lua/test_clock.lua")));

/// The clock of a store: the server's, except in tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeSource {
    #[cfg(feature = "injected-time")]
    pub(crate) clock: Option<fluxgate_core::ManualClock>,
}

impl TimeSource {
    /// Returns the script for this clock and for calls with or without lease requests.
    pub(crate) fn script(&self, has_leases: bool) -> &'static Script {
        #[cfg(feature = "injected-time")]
        if self.clock.is_some() {
            return if has_leases {
                &LEASE_TEST_SCRIPT
            } else {
                &TEST_SCRIPT
            };
        }
        if has_leases { &LEASE_SCRIPT } else { &SCRIPT }
    }

    /// Returns the time that a test has set, if any.
    pub(crate) fn test_time(&self) -> Option<Timestamp> {
        #[cfg(feature = "injected-time")]
        if let Some(clock) = &self.clock {
            return Some(fluxgate_core::Clock::now(clock));
        }
        None
    }

    /// Returns the time to pass to the script of tests.
    pub(crate) fn now(&self) -> Option<String> {
        self.test_time().map(|now| now.micros().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_reads_only_the_clock_of_the_server() {
        let text = SCRIPT.text;
        assert_eq!(text.matches("call('TIME')").count(), 1);
        // It reads only the first argument, the checks.
        assert_eq!(text.matches("ARGV").count(), 1);
        assert_eq!(text.matches("ARGV[1]").count(), 1);
        // `now` is assigned from the clock only.
        let assignments = text.lines().filter(|line| line.contains("now ="));
        assert_eq!(
            assignments.collect::<Vec<_>>(),
            ["local now = time[1] * 1000000 + time[2]"]
        );
        assert!(TEST_SCRIPT.text.contains("ARGV[2]"));
        assert_ne!(SCRIPT.sha1, TEST_SCRIPT.sha1);
    }

    /// Leases must not change the script of other calls. Update the hash when that script
    /// changes for another reason.
    #[test]
    fn leases_change_nothing_for_other_calls() {
        assert_eq!(SCRIPT.sha1, "f09c42bd709a225b325ebb70901f822fb14e1440");
        assert!(!SCRIPT.text.contains("LEASE") && LEASE_SCRIPT.text.contains("LEASE"));
    }

    #[test]
    fn the_sha1_is_in_lower_case_hexadecimal() {
        assert_eq!(
            Script::new("return 1").sha1,
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        );
    }
}
