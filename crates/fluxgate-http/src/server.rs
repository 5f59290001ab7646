//! The parts that the HTTP listeners of the service and the gateway share: request ids, buffers,
//! heads, streams, file descriptors and closing.

mod buffers;
mod closing;
mod descriptors;
mod error_rewriter;
mod head;
mod origin;
pub mod request_id;
mod stream;

pub use buffers::{Buffers, INPUT};
pub use closing::{LINGER, close_gracefully, send, until_closing};
pub use descriptors::{DescriptorPermit, DescriptorShare, raise_descriptor_limit};
pub use error_rewriter::{ErrorRewriter, LibraryErrors, closing_response};
pub use head::{
    content_length, is_token, wall_clock, write_date, write_header, write_number, write_status,
    write_status_line,
};
pub use origin::{Listener, OUTCOME, Origin, RULE_SET, STATUS, TRACEPARENT};
pub use request_id::REQUEST_ID;
pub use stream::{ClientStream, PrefixedStream};
