//! Upstreams: balancing, health, and connections to them.

mod balancer;
mod connection_limit;
mod health;
pub(crate) mod pool;
mod server;
mod stream;

pub(crate) use balancer::{Assignment, AttemptedUpstreams, Balancer};
pub(crate) use connection_limit::{ConnectionLimit, OpenBodyPermit};
pub(crate) use server::Upstream;
pub(crate) use stream::UpstreamStream;
