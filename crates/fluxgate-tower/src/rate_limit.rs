//! The tower middleware: [`RateLimitLayer`] configures it, [`RateLimit`] evaluates requests,
//! [`ResponseFuture`] waits, forwards or rejects.

mod body;
mod by_key;
mod customizer;
mod denial;
mod future;
mod layer;
mod peer;
mod rejection;
mod service;

pub use body::{MakeBody, ResponseBody, SameBody, WrapBody};
pub use customizer::Customizer;
pub use denial::Denial;
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use peer::PeerAddr;
pub use service::RateLimit;
