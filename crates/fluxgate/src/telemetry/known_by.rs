//! What a request is known by in the log.

use super::trace_context::TraceContext;
use crate::engine::Origin;

/// What a line says of the request that it is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownBy<'a> {
    pub(crate) request_id: &'a str,
    /// From the caller's `traceparent`, if it is a good one.
    pub(crate) trace: Option<TraceContext>,
}

impl<'a> KnownBy<'a> {
    /// Of what its headers say.
    pub(crate) fn new(request_id: &'a str, traceparent: Option<&str>) -> Self {
        Self {
            request_id,
            trace: traceparent.and_then(TraceContext::parse),
        }
    }
}

/// A request of which no more is known.
impl<'a> From<&'a str> for KnownBy<'a> {
    fn from(request_id: &'a str) -> Self {
        Self::new(request_id, None)
    }
}

impl<'a> From<&'a Origin<'_>> for KnownBy<'a> {
    fn from(origin: &'a Origin<'_>) -> Self {
        Self::new(origin.request_id(), origin.traceparent)
    }
}
