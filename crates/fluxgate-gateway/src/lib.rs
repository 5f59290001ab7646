//! FluxGate's gateway: a reverse proxy that enforces rules on its routes.
//!
//! A request is read by one of two transports: the [fast path](fast_path) parses HTTP/1.1
//! itself, hyper reads everything else. Both pass it to one [admission] policy and one
//! [forwarder](forward), which sends it over a pooled connection to an upstream.

#![warn(missing_docs)]

mod active_config;
mod admission;
mod config;
mod counts;
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
mod health_check;
mod hop_by_hop;
mod http2_frames;
mod http_server;
mod llm;
mod mcp;
mod observer;
mod received_request;
mod request_body;
mod request_checks;
mod request_record;
mod rewrite;
mod routes;
mod timeouts;
mod upstream;
mod upstream_request;

pub use config::{
    Config, CorsConfig, HeaderEdits, HeaderTest, HealthConfig, HostPattern, HostRewrite, Limits,
    LlmConfig, MAX_CALL_BODY, MAX_MCP_BODY, McpConfig, OnAbort, RetryConfig, RetryOn,
    RewriteConfig, RouteBodyLimit, RouteConfig, RouteMatch, RouteTimeouts, Timeouts, UnknownCalls,
    UpstreamConfig, UpstreamScheme, UpstreamTarget,
};
pub use counts::{DURATION_BOUNDS, ResponseTotals, STATUS_CLASS_NAMES};
pub use engine::{EndedRequest, Engine, RequestFacts, RequestObserver, RequestTrace};
pub use fluxgate_http::TrustError;
pub use fluxgate_llm::Reserve;
pub use gateway::{Gateway, Observers, PreparedConfig, RouteStatus};
pub use http_server::serve;
pub use llm::{CallEnd, CallObserver};
pub use observer::{EjectionCause, UpstreamChange, UpstreamObserver};
pub use upstream::UpstreamStatus;
