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

pub use client_ip::{ClientIpSource, NetworkError, PeerAddr};
pub use context::Identity;
pub use handler::{Handler, HeaderNames};
pub use headers::{HeaderFamilies, ResetFormat};
pub use problem::FailedClosedStatus;
pub use rate_limit::{
    Customizer, Denial, MakeBody, RateLimit, RateLimitLayer, ResponseBody, ResponseFuture,
    SameBody, WrapBody,
};
#[cfg(feature = "remote")]
pub use remote::{RemoteError, RemoteHandler};
pub use report::Report;
pub use source::{Source, SourceError};

/// The parts that the other crates of FluxGate are built from. They may change in any
/// release.
#[doc(hidden)]
pub mod internals {
    pub use crate::client_ip::TrustedProxies;
    pub use crate::filter::Filter;
    pub use crate::filter::evaluate::{FilterOutcome, PendingEvaluation};
    pub use crate::headers::LimitHeaders;
    pub use crate::problem::{PROBLEM_JSON, Problem, write_denial, write_denial_start};
    #[cfg(feature = "remote")]
    pub use crate::remote::{handler::RemoteCharge, report::RemoteReport};
    pub use crate::request_head::{BadRequest, RequestHead};
}

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
