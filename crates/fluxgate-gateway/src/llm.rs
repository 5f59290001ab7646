//! Calls to language models: their tokens are reserved, counted as the answer passes, and
//! settled.

mod body_buffer;
mod call;
mod limit_headers;
mod metered_call;

pub(crate) use body_buffer::{BodyBuffer, BufferedBody};
pub(crate) use call::{CallKind, ReadBody};
pub(crate) use limit_headers::llm_limit_headers;
pub use metered_call::{CallEnd, CallObserver};
pub(crate) use metered_call::{MeteredCall, ReservedCall, with_tokens};
