//! The binary as its users meet it: its files, its streams and its exit codes.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; the helpers are test code too"
)]

mod combined;
mod config;
mod docs;
mod service;
mod simulate;
mod summary;
mod support;
mod validate;
