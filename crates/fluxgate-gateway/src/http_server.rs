//! Requests that hyper reads: HTTP/2, and what the fast path leaves of HTTP/1.1.

mod connection;
mod response_body;
mod service;
mod tunnel;

pub use connection::serve;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use service::origin_form;
