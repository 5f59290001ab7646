//! Units of time, and instants as logs write them.

pub(crate) use fluxgate_core::time::{civil, format_rfc3339, parse_log_time, parse_rfc3339};

/// Units of time, in microseconds.
pub(crate) const MILLISECOND: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;
