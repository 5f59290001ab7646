//! Upstreams: balancing, health, and connections to them.

mod balancer;
mod connection_limit;
mod health;
pub(crate) mod http2;
pub(crate) mod pool;
mod registry;
mod route_upstream;
mod server;
mod tls;

pub(crate) use balancer::{Assignment, AttemptedUpstreams, Balancer};
pub(crate) use connection_limit::{Carrier, ConnectionLimit, OpenBodyPermit};
pub(crate) use registry::UpstreamRegistry;
pub use route_upstream::UpstreamStatus;
pub(crate) use server::{Protocol, Upstream, UpstreamStream};
pub(crate) use tls::TlsClients;
