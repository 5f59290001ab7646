//! What the crate promises, through its public interface alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod client_ip;
mod examples;
mod grpc;
mod handler;
mod hang_up;
mod header_syntax;
mod layer;
mod order;
mod reservations;
mod spelled;
mod stacked;
mod support;
mod waiting;
mod waiting_redis;
