//! The script, its codec and the store on real servers.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod calendar;
mod cluster;
mod conformance;
mod connections;
mod differential;
mod edge_cases;
mod event_log;
mod expiry;
mod faults;
mod foreign;
mod holds;
mod keys;
mod leases;
mod library;
mod load;
mod near_cache;
mod never_exceeded;
mod record;
mod reservations;
mod reset;
mod rule_model;
mod rule_store;
mod sentinel;
mod sequences;
mod store;
mod support;
mod undo;
mod wait_permits;
mod wire;
