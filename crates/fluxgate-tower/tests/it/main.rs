//! Tests of the public interface.

#![expect(
    clippy::unwrap_used,
    reason = "a panic fails the test and names the line"
)]

mod ambiguous;
mod axum_routes;
mod buffered;
mod by_key;
mod charge_always;
mod client_ip;
mod disconnect;
mod examples;
mod filter;
mod grpc;
mod header_syntax;
mod holds;
mod jwt;
mod layer;
mod on_denied;
mod order;
mod reservations;
mod settlements;
mod sources;
mod stacked;
mod support;
mod waiting;
mod waiting_redis;
