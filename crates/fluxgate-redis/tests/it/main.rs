//! The script and its codec on a real server.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod conformance;
mod corners;
mod differential;
mod expiry;
mod foreign;
mod names;
mod sequences;
mod server;
mod store;
mod undo;
