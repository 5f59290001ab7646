//! Upstreams: balancing, health, and connections to them.

mod balancer;
mod connection_limit;
mod health;
pub(crate) mod pool;
mod server;

pub(crate) use balancer::{Assignment, AttemptedUpstreams, Balancer};
pub(crate) use connection_limit::{ConnectionLimit, OpenBodyPermit};
pub(crate) use server::{Upstream, UpstreamStream};
