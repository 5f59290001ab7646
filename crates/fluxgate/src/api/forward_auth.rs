//! `/v1/forward_auth`: decides a request that a proxy describes in headers, or in the path form by
//! calling `/v1/forward_auth/…` with the client's method and target.

mod forwarded;

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use fluxgate_core::{Decision, Outcome};
use fluxgate_http::server::{Listener, OUTCOME, Origin};
use fluxgate_http::{
    FailedClosedStatus, Filter, FilterOutcome, IncomingRequest, PROBLEM_JSON, Problem, write_denial,
};
use http::header::{CONNECTION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::response::ApiResult;
use super::state::{ApiState, SharedState};
use crate::described_request::evaluate;
use crate::engine::{EngineError, Filters};
use forwarded::ForwardedRequest;

/// The path of the endpoint.
const PATH: &str = "/v1/forward_auth";
/// What follows it in the path form, if the call names a filter.
const FILTER: &str = ";filter=";
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Decides the request of a proxy's client. If the proxy disconnects while a request
/// waits, its units and its wait permit are released.
pub(super) async fn forward_auth(State(api): SharedState, request: Request) -> Response {
    let (head, body) = request.into_parts();
    // The body is not used. It may even never arrive, because some proxies copy the
    // client's `Content-Length`: then the connection cannot be reused.
    let has_no_body = body.is_end_stream();
    let mut response = tokio::select! {
        response = decide(&api, &head) => response.into_response(),
        // The response is not sent. The wait is cancelled.
        () = disconnected(body), if !has_no_body => Response::default(),
    };
    if !has_no_body && head.version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    response
}

/// Returns when the client disconnects before the end of its body. hyper notices that only
/// while the body is read.
async fn disconnected(body: Body) {
    const MAX_BYTES: usize = 1 << 20;
    let mut body = std::pin::pin!(Limited::new(body, MAX_BYTES));
    let is_disconnected = loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break !error.is::<LengthLimitError>(),
            None => break false,
        }
    };
    if !is_disconnected {
        std::future::pending::<()>().await;
    }
}

async fn decide(api: &ApiState, head: &Parts) -> ApiResult {
    let (options, target) = match path_form(&head.uri) {
        Some((filter, target)) => (ForwardAuthOptions::with_filter(filter), Some(target)),
        None => {
            let query = head.uri.query().unwrap_or_default();
            (ForwardAuthOptions::read(query)?, None)
        }
    };
    let filters = api.filters.current();
    let filter = options.filter(&filters)?;
    let forwarded = ForwardedRequest::read(head, target)?;
    let path = forwarded.request_path()?;
    if !api.engine.is_ready() {
        return Err(EngineError::NotReady.into());
    }
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    let mut response = Response::default();
    let request = IncomingRequest {
        head: &forwarded,
        path: &path,
        // The peer is the proxy, so its address is not the client's.
        peer: None,
    };
    match evaluate(&api.engine, filter, request, &origin).await {
        FilterOutcome::Skipped => {}
        FilterOutcome::Allowed(decision) => {
            let headers = response.headers_mut();
            filter.families().write(&decision, headers);
        }
        FilterOutcome::Denied(decision) => {
            response = options.denial(&decision, filter.failed_closed());
            let headers = response.headers_mut();
            filter.families().write(&decision, headers);
        }
        FilterOutcome::BadRequest(bad) => return Err(bad.into()),
        FilterOutcome::InvalidToken => return Err(Problem::invalid_token()),
    }
    Ok(response)
}

/// Returns whether a call is in the path form: `/v1/forward_auth/…`, or
/// `/v1/forward_auth;filter=NAME/…`.
pub(super) fn is_path_form(uri: &Uri) -> bool {
    path_form(uri).is_some()
}

/// Returns the filter and the client's target of a call in the path form. All of the query is the
/// client's, so the filter is named before the client's path.
fn path_form(uri: &Uri) -> Option<(Option<&str>, &str)> {
    let target = uri.path_and_query()?.as_str();
    let rest = target.strip_prefix(PATH)?;
    if let Some(rest) = rest.strip_prefix(FILTER) {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (name, target) = rest.split_at(end);
        Some((Some(name), target))
    } else {
        rest.starts_with('/').then_some((None, rest))
    }
}

/// The options of a call.
struct ForwardAuthOptions<'a> {
    filter: Option<Cow<'a, str>>,
    /// The status of denials.
    denied: StatusCode,
}

impl<'a> ForwardAuthOptions<'a> {
    fn with_filter(filter: Option<&'a str>) -> Self {
        Self {
            filter: filter.map(Cow::Borrowed),
            denied: StatusCode::TOO_MANY_REQUESTS,
        }
    }

    fn read(query: &'a str) -> Result<Self, Problem> {
        let mut options = Self::with_filter(None);
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("filter", _) => options.filter = Some(value),
                ("denied", "403") => options.denied = StatusCode::FORBIDDEN,
                ("denied", "429") => options.denied = StatusCode::TOO_MANY_REQUESTS,
                ("denied", _) => return Err(Problem::bad_request("`denied` must be 403 or 429")),
                _ => {
                    return Err(Problem::bad_request(
                        "the query may contain only `filter` and `denied`",
                    ));
                }
            }
        }
        Ok(options)
    }

    /// Returns the named filter, or the only one.
    fn filter<'f>(&self, filters: &'f Filters) -> Result<&'f Filter, Problem> {
        let missing = |detail: &str| Problem::new(StatusCode::NOT_FOUND, detail);
        match &self.filter {
            Some(name) => {
                let filter = filters.get(name);
                filter.ok_or_else(|| missing(&format!("there is no filter `{name}`")))
            }
            None if filters.is_empty() => Err(missing("the config has no `filters`")),
            None => {
                let filter = filters.only();
                filter.ok_or_else(|| Problem::bad_request("`filter` is missing"))
            }
        }
        .map(|filter| &**filter)
    }

    /// Returns the response to a denied request.
    fn denial(&self, decision: &Decision, failed_closed: FailedClosedStatus) -> Response {
        let mut response = Response::default();
        if self.denied != StatusCode::TOO_MANY_REQUESTS {
            // A proxy that needs 403 has a response of its own, and takes any other status
            // for an error.
            *response.status_mut() = self.denied;
            // It distinguishes them from a used up quota.
            if let Outcome::FailedClosed | Outcome::Forbidden = decision.outcome() {
                let outcome = HeaderValue::from_static(decision.outcome().name());
                response.headers_mut().insert(OUTCOME, outcome);
            }
            return response;
        }
        let mut json = Vec::with_capacity(256);
        *response.status_mut() = write_denial(decision, failed_closed, &mut json);
        *response.body_mut() = Body::from(json);
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        response
    }
}
