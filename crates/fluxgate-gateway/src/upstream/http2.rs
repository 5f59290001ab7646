//! Connections to upstreams over HTTP/2. Each carries many requests.

mod connection;
mod frame_watch;
mod pool;

pub(crate) use connection::{Http2Connection, StreamSlot};
pub(crate) use pool::{DialFailure, Http2Pool, close_expired, close_one_idle};
