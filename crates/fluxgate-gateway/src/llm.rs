//! Calls to language models: their tokens are reserved, counted as the answer passes, and
//! settled.

mod body_buffer;
mod call;
mod call_observer;
mod content_type;
mod limit_headers;
mod metered_call;
mod reserved_call;

pub(crate) use body_buffer::{BodyBuffer, BufferedBody};
pub(crate) use call::{CallKind, ReadBody};
pub use call_observer::{CallEnd, CallObserver};
pub(crate) use limit_headers::llm_limit_headers;
pub(crate) use metered_call::MeteredCall;
pub(crate) use reserved_call::{ReservedCall, with_tokens};
