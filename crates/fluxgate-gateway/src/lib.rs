//! FluxGate's gateway: a reverse proxy that enforces rules on its routes.
//!
//! A request is read by one of two transports: the [fast path](fast_path) parses HTTP/1.1
//! itself, hyper reads everything else. Both pass it to one [admission] policy and one
//! [forwarder](forward), which sends it over a pooled connection to an upstream.

#![warn(missing_docs)]

mod admission;
mod config;
mod echo;
mod engine;
mod error;
mod exchange;
mod fast_path;
mod forward;
mod forwarded_headers;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod gateway;
mod hop_by_hop;
mod http_server;
mod llm;
mod received_request;
mod request_body;
mod request_checks;
mod routes;
mod timeouts;
mod upstream;
mod upstream_request;

pub use config::{
    Config, HostPattern, Limits, LlmConfig, MAX_CALL_BODY, OnAbort, RouteConfig, RouteMatch,
    Timeouts, UnknownCalls, UpstreamScheme, UpstreamTarget,
};
pub use engine::Engine;
pub use fluxgate_http::TrustError;
pub use fluxgate_llm::Reserve;
pub use gateway::Gateway;
pub use http_server::serve;
pub use llm::{CallEnd, CallObserver};
