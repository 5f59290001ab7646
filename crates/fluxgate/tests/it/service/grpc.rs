//! Decisions over gRPC, for a client with Envoy's messages and for Envoy itself.

pub(crate) mod client;
mod decisions;
mod envoy;
mod envoy_program;
mod errors;
mod ext_authz;
mod health;
mod imported;
mod kuadrant;
mod own_limits;
mod random_bytes;
mod store_outage;

use client::Client;
