//! The script, its codec and the store on real servers.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod cluster;
mod conformance;
mod connections;
mod corners;
mod differential;
mod expiry;
mod faults;
mod foreign;
mod load;
mod names;
mod near_cache;
mod never_over;
mod reset;
mod rule_store;
mod sentinel;
mod sequences;
mod store;
mod support;
mod undo;
mod waits;
mod wire;
