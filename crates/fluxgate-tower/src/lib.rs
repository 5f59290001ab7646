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
//! `RateLimit` headers. Without `on_denied`, a denied request gets a problem document. axum has the
//! types of the crate `http`, such as `Response`, as `axum::http`.
//!
//! | to limit | use |
//! |---|---|
//! | by a header, an address or a function | [`RateLimitLayer::by_header`], [`by_peer_ip`](RateLimitLayer::by_peer_ip), [`by`](RateLimitLayer::by) |
//! | by a key that requests must have | [`RateLimitLayer::require_key`] after `by_header` or `by` |
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
//! Features are additive. The crate needs Rust 1.93. Waiting requests need a Tokio runtime.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

mod rate_limit;
#[cfg(feature = "remote")]
mod remote;

#[cfg(any(feature = "jwt", feature = "remote-tls"))]
pub use fluxgate_http::TrustError;
pub use fluxgate_http::{
    ClientIpSource, ClientIpSources, FailedClosedStatus, Handler, HeaderFamilies, HeaderNames,
    Identity, NetworkError, Report, RequestHold, ResetFormat, Source, SourceError, SourceList,
};
#[cfg(feature = "jwt")]
pub use fluxgate_http::{Jwt, JwtError, OnInvalid};
pub use rate_limit::{
    Customizer, Denial, MakeBody, PeerAddr, RateLimit, RateLimitLayer, ResponseBody,
    ResponseFuture, SameBody, WrapBody,
};
#[cfg(feature = "remote")]
pub use remote::{RemoteCharge, RemoteError, RemoteHandler, RemoteReport, RemoteRules};

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
    #[doc = include_str!("../../../docs/start/axum.md")]
    struct StartAxum;
}
