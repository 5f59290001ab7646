//! Instants and spans in whole microseconds, and instants as rules and logs write them.

mod civil;
mod span;

pub use civil::{civil, format_rfc3339, parse_log_time, parse_rfc3339};
pub use span::{Micros, Retry, Timestamp};
