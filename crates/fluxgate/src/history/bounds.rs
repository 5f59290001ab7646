//! The bounds of the record.

use std::time::Duration;

/// How often an instance writes to Redis.
pub(super) const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// How many times the last counts are sent at the end, before they are lost.
pub(super) const LAST_TRIES: usize = 3;
/// The maximum number of counts that wait to be written: of one rule, outcome and step each.
pub(super) const MAX_WAITING_COUNTS: usize = 200_000;
/// The maximum number of rows of denials that wait to be written.
pub(super) const MAX_WAITING_ROWS: usize = 20_000;
/// How many writes come between two looks at how many rows there are.
pub(super) const WRITES_PER_TRIM: u64 = 12;
/// The maximum number of values that are read at once.
pub(super) const MAX_VALUES: u64 = 5_000_000;
