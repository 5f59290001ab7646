//! `Authorization`, and its one method `Check`.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use fluxgate_http::server::{Listener, Origin, REQUEST_ID, TRACEPARENT};
use fluxgate_http::{Filter, IncomingRequest};
use http::{HeaderMap, HeaderName};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Status};
use tower_service::Service;

use super::answer::{answer, refused};
use super::head::{DescribedHead, RequestHeaders};
use super::messages::{
    AUTHORIZATION_SERVICE, AttributeContext, CheckRequest, CheckResponse, HttpRequest,
};
use super::strings::Malformed;
use crate::described_request::evaluate;
use crate::engine::{Engine, EngineError, Filters, LiveFilters};
use crate::grpc::unary::{self, BoxedFuture, UnaryMethod};

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
/// The context extension that names a filter.
const FILTER: &[u8] = b"filter";

/// `envoy.service.auth.v3.Authorization`
#[derive(Clone, Debug)]
pub(in crate::grpc) struct AuthorizationService {
    engine: Arc<Engine>,
    filters: LiveFilters,
}

/// Why a call cannot be decided, whatever the client's request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum BadCall {
    #[error("`attributes.request.http` is missing: only HTTP requests are decided")]
    NoHttpRequest,
    #[error("`attributes.request.http`: the headers are not a valid message")]
    Headers,
    #[error("the config has no `filters`")]
    NoFilters,
    #[error("the config has several filters: name one in `context_extensions.filter`")]
    NoFilterName,
    #[error("`context_extensions.filter`: there is no filter `{0}`")]
    UnknownFilter(String),
}

impl NamedService for AuthorizationService {
    const NAME: &'static str = AUTHORIZATION_SERVICE;
}

impl Service<http::Request<Body>> for AuthorizationService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxedFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != CHECK {
            let status = Status::unimplemented("the only method is Check");
            return Box::pin(async { Ok(status.into_http()) });
        }
        let method = self.clone();
        Box::pin(async { Ok(unary::call(request, method).await) })
    }
}

impl UnaryMethod<CheckRequest> for AuthorizationService {
    type Answer = CheckResponse;

    fn answer(&self, request: Request<CheckRequest>) -> BoxedFuture<CheckResponse, Status> {
        let service = self.clone();
        Box::pin(async move { service.check(&request).await })
    }
}

impl AuthorizationService {
    pub(in crate::grpc) fn new(engine: Arc<Engine>, filters: LiveFilters) -> Self {
        Self { engine, filters }
    }

    /// Decides a request. Its slots stay taken until they expire, because Envoy does not say when
    /// the request ends.
    ///
    /// # Errors
    /// If the call itself is wrong, or the rules are not loaded. Envoy may allow a request whose
    /// call fails, so nothing that a client sends leads to an error.
    pub(super) async fn check(
        &self,
        request: &Request<CheckRequest>,
    ) -> Result<CheckResponse, Status> {
        let default = AttributeContext::default();
        let attributes = request.get_ref().attributes.as_ref().unwrap_or(&default);
        let filters = self.filters.current();
        let call = filter_of(attributes, &filters).and_then(|filter| {
            let http = attributes.request.as_ref().and_then(|it| it.http.as_ref());
            Ok((filter, http.ok_or(BadCall::NoHttpRequest)?))
        });
        let call = call.and_then(|(filter, http)| {
            let headers = RequestHeaders::read(http).map_err(|Malformed| BadCall::Headers)?;
            Ok((filter, http, headers))
        });
        let call = call.map_err(|bad| Status::invalid_argument(bad.to_string()));
        let (filter, http, headers) = call?;
        if !self.engine.is_ready() {
            return Err(Status::unavailable(EngineError::NotReady.to_string()));
        }
        let peer = peer_of(attributes);
        Ok(self
            .decide(filter, (http, &headers), peer, request.metadata().as_ref())
            .await)
    }

    async fn decide(
        &self,
        filter: &Filter,
        (http, headers): (&HttpRequest, &RequestHeaders<'_>),
        peer: Option<IpAddr>,
        metadata: &HeaderMap,
    ) -> CheckResponse {
        let grpc = headers.grpc_content_type();
        let head = match DescribedHead::read(http, headers) {
            Ok(head) => head,
            Err(problem) => return refused(problem, grpc),
        };
        let path = match head.path() {
            Ok(path) => path,
            Err(problem) => return refused(problem, grpc),
        };
        // Those of the client's request, or else of the call.
        let text = |name: HeaderName| {
            let given = headers.text(name.as_str());
            given.or_else(|| metadata.get(name)?.to_str().ok())
        };
        let origin = Origin::with_ids(Listener::Grpc, text(REQUEST_ID), text(TRACEPARENT));
        let request = IncomingRequest {
            head: &head,
            path: &path,
            peer,
        };
        let outcome = evaluate(&self.engine, filter, request, &origin).await;
        answer(outcome, filter, grpc)
    }
}

/// Returns the named filter, or the only one.
fn filter_of<'f>(
    attributes: &AttributeContext,
    filters: &'f Filters,
) -> Result<&'f Filter, BadCall> {
    let mut extensions = attributes.context_extensions.iter();
    let filter = match extensions.find(|entry| entry.key == FILTER) {
        Some(entry) => {
            let name = String::from_utf8_lossy(&entry.value);
            let filter = filters.get(&name);
            filter.ok_or_else(|| BadCall::UnknownFilter(name.into_owned()))
        }
        None if filters.is_empty() => Err(BadCall::NoFilters),
        None => filters.only().ok_or(BadCall::NoFilterName),
    };
    filter.map(|filter| &**filter)
}

/// Returns the address of the client's connection to Envoy.
fn peer_of(attributes: &AttributeContext) -> Option<IpAddr> {
    let address = attributes.source.as_ref()?.address.as_ref()?;
    let address = &address.socket_address.as_ref()?.address;
    str::from_utf8(address).ok()?.parse().ok()
}
