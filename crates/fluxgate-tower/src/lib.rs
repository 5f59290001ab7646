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
pub use body::{AnyBody, Bodies, ResponseBody, SameBody};
pub use client_ip::{ClientIp, TrustedProxies};
pub use context::Identity;
pub use customizer::Customizer;
pub use filter::{Customize, Filter, Judgement, Unsettled};
pub use future::ResponseFuture;
pub use handler::{Handler, Wanted, at_once_or_in_background};
pub use head::Head;
pub use headers::{HeaderFamilies, Reset, Told};
pub use layer::RateLimitLayer;
pub use peer::PeerAddr;
pub use problem::{
    FailedClosedStatus, PROBLEM_JSON, QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE, REDUCED_CAPACITY,
    REDUCED_CAPACITY_TITLE, write_refusal, write_refusal_start,
};
#[cfg(feature = "remote")]
pub use remote::{RemoteCharge, RemoteError, RemoteHandler, RemoteRuling};
pub use ruling::Ruling;
pub use service::RateLimit;
