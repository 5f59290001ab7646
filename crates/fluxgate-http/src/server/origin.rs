//! Which listener a request came in on, and its ids.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::request_id;

/// The header that names the trace of a request (W3C Trace Context).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header for the outcome of a decision, on responses without a body for it.
pub const OUTCOME: HeaderName = HeaderName::from_static("x-fluxgate-outcome");

/// The status of the rule that forbids a request. Decisions in JSON do not have it.
pub const STATUS: HeaderName = HeaderName::from_static("x-fluxgate-status");
/// The response header with `missing`, if the request names a rule set that does not exist.
pub const RULE_SET: HeaderName = HeaderName::from_static("x-fluxgate-rule-set");

/// The listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listener {
    /// Decisions over HTTP.
    Api,
    /// Decisions over gRPC.
    Grpc,
    /// Decisions over the Redis protocol.
    Resp,
    /// Requests that are forwarded.
    Gateway,
}

impl Listener {
    /// All listeners, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Api, Self::Grpc, Self::Resp, Self::Gateway];

    /// Returns the name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Gateway => "gateway",
        }
    }
}

/// Which listener a request came in on, and its ids.
#[derive(Clone, Debug)]
pub struct Origin<'a> {
    /// The listener.
    pub listener: Listener,
    /// The client's request id, or one that is made when it is first needed: most
    /// requests are never logged.
    id: OnceLock<HeaderValue>,
    /// `traceparent`, if the client gave one.
    pub traceparent: Option<&'a str>,
}

impl<'a> Origin<'a> {
    /// A request without ids.
    pub const fn of(listener: Listener) -> Self {
        Self {
            listener,
            id: OnceLock::new(),
            traceparent: None,
        }
    }

    /// A request with these ids.
    pub fn with_ids(
        listener: Listener,
        request_id: Option<&str>,
        traceparent: Option<&'a str>,
    ) -> Self {
        let given = request_id.filter(|id| request_id::is_valid(id.as_bytes()));
        let given = given.and_then(|id| HeaderValue::from_str(id).ok());
        Self {
            listener,
            id: given.map_or_else(OnceLock::new, OnceLock::from),
            traceparent,
        }
    }

    /// A request with these headers.
    pub fn with_headers(listener: Listener, headers: &'a HeaderMap) -> Self {
        let id = match request_id::given(headers) {
            Some(id) => OnceLock::from(id.clone()),
            None => OnceLock::new(),
        };
        let traceparent = headers.get(TRACEPARENT);
        Self {
            listener,
            id,
            traceparent: traceparent.and_then(|value| value.to_str().ok()),
        }
    }

    /// Returns the request id.
    pub fn request_id(&self) -> &str {
        let id = self.id.get_or_init(request_id::next);
        // Given and made ids are both plain ASCII.
        id.to_str().unwrap_or_default()
    }

    /// Returns the request id if the client gave one or one was made.
    pub fn into_id(self) -> Option<HeaderValue> {
        self.id.into_inner()
    }
}
