//! The binary as its users meet it: its files, its streams and its exit codes.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; the helpers are test code too"
)]

mod config;
mod dashboards;
mod deploy;
mod docs;
mod examples;
mod fuzz;
mod gateway;
mod gateway_faults;
mod layout;
mod operations;
mod service;
mod simulate;
mod support;
mod validate;
