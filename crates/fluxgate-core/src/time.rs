//! Instants and spans in whole microseconds, and instants as rules and logs write them.

mod civil;
pub(crate) mod dates;
mod span;

pub use civil::{format_rfc3339, parse_log_time, parse_rfc3339};
pub use dates::civil;
pub use span::{Micros, Retry, Timestamp};
