//! What the binary `fluxgate` is made of.

mod admin;
mod api;
mod call_limit;
pub mod cli;
pub mod config;
mod engine;
mod filters;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod grpc;
mod regular_file;
mod reload;
mod resp;
pub mod rule_file;
mod server;
mod telemetry;
