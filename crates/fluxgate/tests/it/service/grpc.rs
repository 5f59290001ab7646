//! Decisions over gRPC, for a client with Envoy's messages and for Envoy itself.

pub(crate) mod client;
mod decisions;
mod envoy;
mod errors;
mod health;
mod imported;
mod random_bytes;
mod store_outage;

use client::Client;
