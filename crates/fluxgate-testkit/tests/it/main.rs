//! Tests of the kit with real servers.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; the helpers are test code too"
)]

mod cluster;
mod proxy;
mod sentinel;
mod server;
mod valkey;
