//! Instants and spans in whole microseconds, and instants as rules write them.

mod civil;
pub(crate) mod dates;
mod span;

pub use civil::{format_rfc3339, parse_rfc3339};
pub use span::{Micros, Retry, Timestamp};
