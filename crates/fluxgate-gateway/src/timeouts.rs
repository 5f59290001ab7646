//! Timeouts of client connections and of their HTTP/2 streams.

mod connection_state;
mod deadline;
mod http2_frames;
mod http2_streams;
mod timeout_stream;

pub(crate) use connection_state::{ConnectionState, InFlight};
pub(crate) use deadline::Deadline;
pub(crate) use http2_streams::{Progress, StreamExecutor, watch_response};
pub(crate) use timeout_stream::{TimeoutStream, idle_after_parking};
