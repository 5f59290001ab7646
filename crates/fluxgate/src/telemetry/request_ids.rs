//! The ids by which a log line names a request.

use super::trace_context::TraceContext;
use crate::http::Origin;

/// The ids of a request in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestIds<'a> {
    pub(crate) request_id: &'a str,
    /// From the caller's `traceparent`, if it is valid.
    pub(crate) trace: Option<TraceContext>,
}

impl<'a> RequestIds<'a> {
    /// The ids that the headers of a request give.
    pub(crate) fn new(request_id: &'a str, traceparent: Option<&str>) -> Self {
        Self {
            request_id,
            trace: traceparent.and_then(TraceContext::parse),
        }
    }
}

/// A request without a trace.
impl<'a> From<&'a str> for RequestIds<'a> {
    fn from(request_id: &'a str) -> Self {
        Self::new(request_id, None)
    }
}

impl<'a> From<&'a Origin<'_>> for RequestIds<'a> {
    fn from(origin: &'a Origin<'_>) -> Self {
        Self::new(origin.request_id(), origin.traceparent)
    }
}
