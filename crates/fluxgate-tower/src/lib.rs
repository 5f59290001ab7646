//! Rate limits for HTTP: a tower layer for axum, hyper, tonic and any other tower `Service`.
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use fluxgate_core::Quota;
//! use fluxgate_tower::RateLimitLayer;
//! use http::Response;
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let limits = RateLimitLayer::by_header("x-api-key", Quota::per_second(10).burst(50))
//!         .on_denied(|_request, denial| {
//!             let wait = denial.retry_after().unwrap_or_default();
//!             let mut response = Response::new(format!("slow down: retry after {wait:?}\n"));
//!             *response.status_mut() = denial.status();
//!             response
//!         });
//!     let app = Router::new().route("/", get(async || "hello\n")).layer(limits);
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     let app = app.into_make_service_with_connect_info::<SocketAddr>();
//!     axum::serve(listener, app).await
//! }
//! ```
//!
//! Each API key may send 50 requests at once and 10 a second after that. Requests without the
//! header are limited by their address, which axum provides as `ConnectInfo`. Responses carry
//! `RateLimit` headers. Without `on_denied`, a denied request gets a problem document.
//!
//! | to limit | use |
//! |---|---|
//! | by a header, an address or a function | [`RateLimitLayer::by_header`], [`by_peer_ip`](RateLimitLayer::by_peer_ip), [`by`](RateLimitLayer::by) |
//! | all requests together | [`RateLimitLayer::global`] |
//! | by several rules | [`RateLimitLayer::by_rules`] |
//! | by rules that change, or with Redis | [`RateLimitLayer::new`] with a [`Limiter`](fluxgate_core::Limiter) |
//! | by decisions of a FluxGate service | [`RateLimitLayer::with_handler`] with a `RemoteHandler` |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `axum` | | the peer's address from axum's `ConnectInfo` |
//! | `jwt` | | `Jwt` and `Source::jwt`: claims of verified tokens |
//! | `remote` | | `RemoteHandler`: a FluxGate service decides |
//! | `remote-tls` | | `https` addresses for `RemoteHandler`, with rustls |
//!
//! Features only add. The crate needs Rust 1.93. Waiting requests need a Tokio runtime.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

mod alike_names;
mod checked_headers;
mod claims;
mod client_ip;
mod context;
mod filter;
mod handler;
mod headers;
#[cfg(feature = "jwt")]
mod jwt;
mod problem;
mod rate_limit;
mod rate_limit_fields;
#[cfg(feature = "remote")]
mod remote;
mod report;
mod request_head;
mod request_hold;
mod source;
#[cfg(any(feature = "jwt", feature = "remote-tls"))]
mod trust;

pub use client_ip::{ClientIpSource, ClientIpSources, NetworkError, PeerAddr};
pub use context::Identity;
pub use handler::{Handler, HeaderNames};
pub use headers::{HeaderFamilies, ResetFormat};
#[cfg(feature = "jwt")]
pub use jwt::{Jwt, JwtError, OnInvalid};
pub use problem::FailedClosedStatus;
pub use rate_limit::{
    Customizer, Denial, MakeBody, RateLimit, RateLimitLayer, ResponseBody, ResponseFuture,
    SameBody, WrapBody,
};
#[cfg(feature = "remote")]
pub use remote::{RemoteError, RemoteHandler};
pub use report::Report;
pub use request_hold::RequestHold;
pub use source::{Source, SourceError, SourceList};
#[cfg(any(feature = "jwt", feature = "remote-tls"))]
pub use trust::TrustError;

/// The parts that the other crates of FluxGate are built from. They may change in any
/// release.
#[doc(hidden)]
pub mod internals {
    pub use crate::alike_names::{are_alike, is_plain_name};
    pub use crate::client_ip::TrustedProxies;
    pub use crate::filter::Filter;
    pub use crate::filter::alike_headers::imitates_proxy_header;
    pub use crate::filter::evaluate::{FilterOutcome, PendingEvaluation};
    pub use crate::headers::LimitHeaders;
    pub use crate::problem::{
        INVALID_TOKEN_CHALLENGE, PROBLEM_JSON, Problem, write_denial, write_denial_start,
    };
    #[cfg(feature = "remote")]
    pub use crate::remote::{
        handler::{RemoteCharge, RemoteRules},
        report::RemoteReport,
    };
    pub use crate::request_head::{BadRequest, RequestHead, check_method};
    pub use crate::request_hold::HeldUntilDropped;
    #[cfg(feature = "jwt")]
    pub use crate::trust::client_config;
    #[cfg(any(feature = "jwt", feature = "remote-tls"))]
    pub use crate::trust::{ClientCertificates, certificates_in, client_config_with};
}

/// Compiles and runs the Rust code of the documents as doctests. This crate has all the
/// dependencies that the code needs.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct CrateReadme;
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/concurrency.md")]
    struct Concurrency;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/middleware.md")]
    struct Middleware;
    #[doc = include_str!("../../../docs/redis.md")]
    struct Redis;
}
