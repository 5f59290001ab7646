//! Limits where HTTP traffic is: a filter for any server, a tower layer on top of
//! it, and how a client is told of its limits.
#![deny(missing_docs)]

mod bad_request;
mod body;
mod client_ip;
mod context;
mod customizer;
#[cfg(doctest)]
mod documents;
mod filter;
mod future;
mod handler;
mod head;
mod headers;
mod layer;
mod peer;
mod problem;
mod refusal;
#[cfg(feature = "remote")]
mod remote;
mod ruling;
mod service;
mod wait;

pub use bad_request::BadRequest;
pub use body::{MakeBody, ResponseBody, SameBody, WrapBody};
pub use client_ip::{ClientIpSource, TrustedProxies};
pub use context::Identity;
pub use customizer::Customizer;
pub use filter::{Customize, Filter, FilterOutcome, PendingEvaluation};
pub use future::ResponseFuture;
pub use handler::{Handler, HeaderNames, poll_once_or_spawn};
pub use head::RequestHead;
pub use headers::{HeaderFamilies, LimitHeaders, ResetFormat};
pub use layer::RateLimitLayer;
pub use peer::PeerAddr;
pub use problem::{
    FailedClosedStatus, PROBLEM_JSON, QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE, REDUCED_CAPACITY,
    REDUCED_CAPACITY_TITLE, write_denial, write_denial_start,
};
#[cfg(feature = "remote")]
pub use remote::{RemoteCharge, RemoteError, RemoteHandler, RemoteReport};
pub use ruling::Report;
pub use service::RateLimit;
