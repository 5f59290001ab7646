//! Recorded requests are decided as the rules say.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot continue has failed; the helpers are test code too"
)]

mod against;
mod algorithms;
mod bad_lines;
mod combined;
mod fields;
mod random;
mod rules;
mod summary;
mod support;
mod warm_start;
