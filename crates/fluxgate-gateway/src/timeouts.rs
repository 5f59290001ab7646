//! Timeouts of client connections and of their HTTP/2 streams.
//!
//! [`TimeoutStream`] closes idle and slow connections that hyper serves; before it closes an
//! HTTP/2 connection, `http_server/connection.rs` sends `GOAWAY`. The fast path sets a
//! [`Deadline`] for each read and write in `fast_path/client.rs`.

mod connection_state;
mod deadline;
mod http2_frames;
mod http2_streams;
mod timeout_stream;

pub(crate) use connection_state::{ConnectionState, InFlight};
pub(crate) use deadline::Deadline;
pub(crate) use http2_streams::{Progress, StreamExecutor, watch_response};
pub(crate) use timeout_stream::{TimeoutStream, idle_after_parking};
