//! Decisions over gRPC: asked by a client with Envoy's own messages, and by
//! Envoy itself.

mod client;
mod decisions;
mod envoy;
mod garbage;
mod health;
mod refused;
mod store_trouble;

use client::Client;
