//! The script, its codec and the store on real servers.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod conformance;
mod connections;
mod corners;
mod differential;
mod expiry;
mod faults;
mod foreign;
mod names;
mod near_cache;
mod sequences;
mod server;
mod store;
mod support;
mod undo;
