//! FluxGate for HTTP: a filter for any server, a tower layer built on it, and the headers and
//! bodies that report limits to clients.
#![deny(missing_docs)]

mod client_ip;
mod context;
mod filter;
mod handler;
mod headers;
mod problem;
mod rate_limit;
mod rate_limit_fields;
#[cfg(feature = "remote")]
mod remote;
mod report;
mod request_head;
mod source;

pub use client_ip::{ClientIpSource, NetworkError, PeerAddr, TrustedProxies};
pub use context::Identity;
pub use filter::Filter;
pub use filter::evaluate::{FilterOutcome, PendingEvaluation};
pub use handler::{Handler, HeaderNames};
pub use headers::{HeaderFamilies, LimitHeaders, ResetFormat};
pub use problem::{FailedClosedStatus, PROBLEM_JSON, Problem, write_denial, write_denial_start};
pub use rate_limit::{
    Customizer, Denial, MakeBody, RateLimit, RateLimitLayer, ResponseBody, ResponseFuture,
    SameBody, WrapBody,
};
#[cfg(feature = "remote")]
pub use remote::{RemoteError, RemoteHandler, handler::RemoteCharge, report::RemoteReport};
pub use report::Report;
pub use request_head::{BadRequest, RequestHead};
pub use source::{Source, SourceError};

/// Compiles and runs the Rust code of the documents as doctests. This crate has all the
/// dependencies that the code needs.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/middleware.md")]
    struct Middleware;
    #[doc = include_str!("../../../docs/redis.md")]
    struct Redis;
}
