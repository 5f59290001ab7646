//! The tower middleware: [`RateLimitLayer`] configures it, [`RateLimit`] evaluates requests,
//! [`ResponseFuture`] waits, forwards or rejects.

mod future;
mod layer;
mod rejection;
mod service;

pub use future::{MakeBody, ResponseBody, ResponseFuture, SameBody, WrapBody};
pub use layer::RateLimitLayer;
pub use rejection::Denial;
pub use service::{Customizer, PeerAddr, RateLimit};
