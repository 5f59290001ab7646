//! The library of the `fluxgate` binary.

mod admin;
mod api;
pub mod cli;
pub mod config;
mod console;
mod described_request;
mod engine;
mod events;
mod failure;
// Hidden, because the feature serves the fuzz targets of this repository only: its functions
// may change at any time.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod history;
mod hold_span;
mod identities;
mod instances;
mod live;
mod recording;
mod reload;
mod resp;
mod serve;
mod server;
mod telemetry;
mod usage;
mod watch;
