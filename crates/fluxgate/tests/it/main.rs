//! Integration tests of the binary.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot continue has failed; the helpers are test code too"
)]

mod client;
mod config;
mod console;
mod dashboards;
mod deploy;
mod docs;
mod events;
mod examples;
mod explain;
mod frameworks;
mod fuzz;
mod gateway;
mod gateway_faults;
mod generated;
mod http2_peers;
mod import;
mod layout;
mod llm;
mod mcp;
mod operations;
mod rule_sources;
mod service;
mod simulate;
mod specification;
mod support;
mod terminal;
mod upgrades;
mod validate;
mod warnings;
