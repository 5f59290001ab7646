//! Requests that a proxy describes before it forwards them: decided by a filter, as the gateway
//! would decide them.

use std::sync::Arc;

use bytes::Bytes;
use fluxgate_core::Decision;
use fluxgate_core::path::RequestPath;
use fluxgate_http::server::Origin;
use fluxgate_http::{
    BadRequest, Evaluation, Filter, FilterOutcome, Handler, HeaderNames, IncomingRequest,
    RequestHead,
};
use http::{Method, Uri};

use crate::engine::{Engine, EngineHandler};

/// The method and the target of the client's request.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    method: Method,
    uri: Uri,
}

/// Why a method and a target are not those of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("the method of the request is not a token")]
    Method,
    /// `Uri` drops the fragment; the server may not.
    #[error("the target of the request contains a `#`")]
    Fragment,
    #[error("the target of the request is not a URI")]
    Uri,
    #[error("the target of the request has no path")]
    NoPath,
}

impl RequestTarget {
    /// Reads a method and a target. Refuses what the gateway would refuse: otherwise the rules could
    /// match another path than the server.
    pub(crate) fn read(method: &[u8], target: Bytes) -> Result<Self, TargetError> {
        let method = Method::from_bytes(method).map_err(|_| TargetError::Method)?;
        if target.contains(&b'#') {
            return Err(TargetError::Fragment);
        }
        let uri = Uri::from_maybe_shared(target).map_err(|_| TargetError::Uri)?;
        let path = uri.path();
        // Only `OPTIONS *` has a target without a path.
        if path.is_empty() || (path == "*" && method != Method::OPTIONS) {
            return Err(TargetError::NoPath);
        }
        Ok(Self { method, uri })
    }

    /// Returns the method.
    pub(crate) fn method(&self) -> &str {
        self.method.as_str()
    }

    /// Returns the query, without its `?`, if there is one.
    pub(crate) fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    /// Returns the path, raw and normal.
    pub(crate) fn path(&self) -> Result<RequestPath<'_>, BadRequest> {
        Ok(RequestPath::read(self.uri.path())?)
    }
}

/// Evaluates a request. Refuses one with a header that servers may take for one that counts: it
/// cannot be removed from the request that the proxy forwards.
pub(crate) async fn evaluate(
    engine: &Arc<Engine>,
    filter: &Filter,
    request: IncomingRequest<'_, impl RequestHead + Sync>,
    origin: &Origin<'_>,
) -> FilterOutcome<Decision> {
    let handler = EngineHandler::new(engine, origin);
    let Some(rules) = filter.rules_for(&handler, request.path) else {
        return FilterOutcome::Skipped;
    };
    // The engine's rules always name the headers that they read.
    if let HeaderNames::Only(names) = handler.header_names(&rules)
        && filter.has_alike_header(request.head, names)
    {
        return FilterOutcome::BadRequest(BadRequest::AlikeHeader);
    }
    match Evaluation::new(filter, &handler, &rules, request, |context| context) {
        Ok(evaluation) => evaluation.evaluate().await,
        Err(error) => error.into(),
    }
}
