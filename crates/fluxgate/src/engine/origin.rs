//! Where a request came in, and what it is known by.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::server::request_id;

/// Which trace a request belongs to.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The outcome of a decision, on answers that have no other place to say it.
pub(crate) const OUTCOME: HeaderName = HeaderName::from_static("x-fluxgate-outcome");

/// The listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Listener {
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
    /// All of them, in the order of their declaration.
    pub(crate) const ALL: [Self; 4] = [Self::Api, Self::Grpc, Self::Resp, Self::Gateway];

    /// Its name in logs and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Gateway => "gateway",
        }
    }
}

/// Where a request came in, and what it is known by.
#[derive(Clone, Debug)]
pub(crate) struct Origin<'a> {
    /// Who took it.
    pub(crate) listener: Listener,
    /// What the client calls it, or a name that is made when it is first needed:
    /// most requests are never spoken of.
    id: OnceLock<HeaderValue>,
    /// `traceparent`, if the client gave one.
    pub(crate) traceparent: Option<&'a str>,
}

impl<'a> Origin<'a> {
    /// A request that is not known by anything.
    pub(crate) const fn of(listener: Listener) -> Self {
        Self {
            listener,
            id: OnceLock::new(),
            traceparent: None,
        }
    }

    /// A request of this trace.
    #[cfg(test)]
    pub(crate) fn traced(traceparent: &'a str) -> Self {
        Self {
            traceparent: Some(traceparent),
            ..Self::of(Listener::Grpc)
        }
    }

    /// A request that is known by these.
    pub(crate) fn known(
        listener: Listener,
        request_id: Option<&str>,
        traceparent: Option<&'a str>,
    ) -> Self {
        let given = request_id.filter(|id| request_id::is_good(id.as_bytes()));
        let given = given.and_then(|id| HeaderValue::from_str(id).ok());
        Self {
            listener,
            id: given.map_or_else(OnceLock::new, OnceLock::from),
            traceparent,
        }
    }

    /// A request with these headers.
    pub(crate) fn with_headers(listener: Listener, headers: &'a HeaderMap) -> Self {
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

    /// What it is known by.
    pub(crate) fn request_id(&self) -> &str {
        let id = self.id.get_or_init(request_id::next);
        // Neither what was given nor what was made holds anything else than text.
        id.to_str().unwrap_or_default()
    }

    /// What it is known by, if anybody asked for it.
    pub(crate) fn into_id(self) -> Option<HeaderValue> {
        self.id.into_inner()
    }
}
