//! The parts that the HTTP listeners of the service and the gateway share: request ids, buffers,
//! heads, streams, file descriptors and closing.

mod buffers;
mod client_stream;
mod closing;
mod descriptors;
mod error_rewriter;
mod head;
mod header_values;
mod origin;
mod prefixed_stream;
pub mod request_id;

pub use buffers::{Buffers, INPUT};
pub use client_stream::ClientStream;
pub use closing::{LINGER, close_gracefully, send, until_closing};
pub use descriptors::{DescriptorPermit, DescriptorShare, raise_descriptor_limit};
pub use error_rewriter::{ErrorRewriter, LibraryErrors, closing_response};
pub use head::{write_header, write_number, write_status, write_status_line};
pub use header_values::{content_length, is_token, wall_clock, write_date};
pub use origin::{Listener, OUTCOME, Origin, STATUS, TRACEPARENT};
pub use prefixed_stream::PrefixedStream;
pub use request_id::REQUEST_ID;
