//! Timeouts of client connections and of their HTTP/2 streams.
//!
//! An idle HTTP/1.1 connection is on the fast path, and `fast_path/client.rs` closes it: there
//! each read and write has a [`Deadline`]. [`TimeoutStream`] closes what hyper serves, that is
//! HTTP/2 and slow requests; before it closes an HTTP/2 connection, `http_server/connection.rs`
//! sends `GOAWAY`. `http_server/tunnel.rs` closes idle tunnels.

mod connection_state;
mod deadline;
mod http2_frames;
mod http2_streams;
mod timeout_stream;

pub(crate) use connection_state::{ConnectionState, InFlight};
pub(crate) use deadline::Deadline;
pub(crate) use http2_streams::{Progress, StreamExecutor, watch_response};
pub(crate) use timeout_stream::{TimeoutStream, idle_after_parking};
