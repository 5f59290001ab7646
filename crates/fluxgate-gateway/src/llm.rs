//! Calls to language models: their tokens are reserved, counted as the answer passes, and
//! settled. Other calls that are read before they are forwarded share the memory for bodies.

mod body_buffer;
mod call;
mod limit_headers;
mod metered_call;

pub(crate) use body_buffer::{BodyBuffer, BufferedBody};
pub(crate) use call::{CallKind, ReadBody, check_body_head};
pub(crate) use limit_headers::llm_limit_headers;
pub use metered_call::{CallEnd, CallObserver};
pub(crate) use metered_call::{MeteredCall, ReservedCall, with_tokens};
