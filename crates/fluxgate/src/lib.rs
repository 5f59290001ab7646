//! The library of the `fluxgate` binary.

mod admin;
mod api;
pub mod cli;
pub mod config;
mod engine;
mod failure;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod hold_span;
mod import;
mod reload;
mod resp;
mod serve;
mod server;
mod telemetry;
mod watch;
