//! Calls of the Model Context Protocol: read from headers and bodies, and refused in JSON-RPC.

mod call_head;
mod call_headers;
mod messages;
mod refusal;

pub(crate) use call_head::CallHead;
pub(crate) use call_headers::CallHeaders;
pub(crate) use messages::{Call, Messages};
pub(crate) use refusal::{CallIds, JSON};
