//! Decisions over HTTP: the headers that tell a client of its limits, and how it
//! is told that it was refused.
#![deny(missing_docs)]

mod headers;
mod problem;

pub use headers::{HeaderFamilies, Reset};
pub use problem::{QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE};
