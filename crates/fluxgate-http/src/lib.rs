//! The HTTP policy of FluxGate, in one place for its layer, its service and its gateway.
//!
//! [`evaluate`] turns a request into the context that rules see, as a [`Filter`] says, lets a
//! [`Handler`] decide, waits if the request must, and returns what to answer: forward the request
//! with headers, or refuse it with a [`Problem`]. It does not depend on a server or framework; the
//! caller passes the head of a request ([`RequestHead`]) and the peer's address.
//!
//! | to | see |
//! |---|---|
//! | read keys and attributes from requests | [`Source`], [`SourceList`], [`Identity`] |
//! | find the client behind proxies | [`ClientIpSources`], [`TrustedProxies`] |
//! | verify tokens | `Jwt`, with the feature `jwt` |
//! | write the headers of limits | [`LimitHeaders`], [`HeaderFamilies`] |
//! | refuse gRPC requests | [`GrpcStatus`] |
//! | keep a request's slots until its response ends | [`RequestHold`], [`HeldUntilDropped`] |
//!
//! To limit requests in a Rust server, use `fluxgate-tower`, which applies this to any tower
//! `Service`.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `axum` | | `Problem` as an axum response |
//! | `client` | | `Endpoint`: requests to other servers, also over TLS |
//! | `jwt` | | `Jwt` and `Source::jwt`: claims of verified tokens |
//! | `server` | | what HTTP listeners share: request ids, buffers, streams, descriptors |
//! | `tls` | | rustls client configurations: trusted authorities and client certificates |
//!
//! Features are additive. The crate needs Rust 1.93. Waiting requests need a Tokio runtime.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

mod alike_names;
mod checked_headers;
mod claims;
mod client_ip;
mod context;
#[cfg(feature = "client")]
mod endpoint;
mod evaluation;
mod filter;
mod grpc;
mod handler;
mod headers;
#[cfg(feature = "jwt")]
mod jwt;
mod problem;
mod report;
mod request_head;
mod request_hold;
#[cfg(feature = "server")]
pub mod server;
mod source;
#[cfg(feature = "tls")]
mod trust;

pub use alike_names::{are_alike, is_plain_name};
pub use checked_headers::WITHHELD;
pub use client_ip::{ClientIpSource, ClientIpSources, NetworkError, TrustedProxies, parse_network};
pub use context::{ContextError, Identity};
#[cfg(feature = "client")]
pub use endpoint::{CallError, Endpoint, EndpointError};
pub use evaluation::{Evaluation, FilterOutcome, IncomingRequest, PendingEvaluation, evaluate};
pub use filter::{Filter, imitates_proxy_header};
pub use grpc::{GrpcCode, GrpcStatus, grpc_content_type, is_grpc, needs_http2};
pub use handler::{Handler, HeaderNames};
pub use headers::{HeaderFamilies, HeaderValues, LimitHeaders, ResetFormat};
#[cfg(feature = "jwt")]
pub use jwt::{Jwt, JwtError, OnInvalid};
pub use problem::{
    FailedClosedStatus, INVALID_TOKEN_CHALLENGE, PROBLEM_JSON, Problem, write_denial,
    write_denial_start,
};
pub use report::Report;
pub use request_head::{BadRequest, McpCall, RequestHead, check_method};
pub use request_hold::{HeldUntilDropped, RequestHold};
pub use source::{Source, SourceError, SourceList};
#[cfg(feature = "tls")]
pub use trust::{ClientCertificates, TrustError, certificates_in, client_config_with};
