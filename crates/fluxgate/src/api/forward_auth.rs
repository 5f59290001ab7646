//! `GET /v1/forward_auth`: a proxy asks about a request that it has, by headers.

mod forwarded;

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use fluxgate_core::{Decision, Outcome};
use fluxgate_tower::{BadRequest, FailedClosedStatus, Filter, FilterOutcome, write_denial};
use http::header::{CONNECTION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::Api;
use crate::engine::{EngineError, EngineHandler};
use crate::http::{Listener, OUTCOME, Origin, PROBLEM_JSON, Problem};
use forwarded::{Forwarded, bad};

const CLOSE: HeaderValue = HeaderValue::from_static("close");
const FAILED_CLOSED: HeaderValue = HeaderValue::from_static("failed_closed");

/// Decides the request that a proxy asks about. One that has to wait waits here;
/// a proxy that hangs up meanwhile gives its units and its place back.
pub(super) async fn forward_auth(State(api): State<Arc<Api>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    // Nobody reads a body here. One that was announced may even never come, as
    // with proxies that repeat a client's length: the connection cannot be kept.
    let is_read = body.is_end_stream();
    let mut answer = tokio::select! {
        answer = api.answer_proxy(&head) => answer.into_response(),
        // Nobody is there to be answered; what was waited for is given back.
        () = breaks_off(body), if !is_read => Response::default(),
    };
    if !is_read && head.version < Version::HTTP_2 {
        answer.headers_mut().insert(CONNECTION, CLOSE);
    }
    answer
}

/// Ends when a body does in the middle. While it is not read, nobody would see that
/// its sender is gone.
async fn breaks_off(body: Body) {
    /// More is no mistake.
    const MOST: usize = 1 << 20;
    let mut body = std::pin::pin!(Limited::new(body, MOST));
    let mut last = None;
    while let Some(frame) = body.frame().await {
        if let Err(error) = frame {
            last = Some(error);
            break;
        }
    }
    match last {
        Some(error) if !error.is::<LengthLimitError>() => {}
        _ => std::future::pending().await,
    }
}

impl Api {
    async fn answer_proxy(&self, head: &Parts) -> Result<Response, Problem> {
        let question = Question::read(head.uri.query().unwrap_or_default())?;
        let filter = question.filter(self)?;
        let forwarded = Forwarded::read(&head.headers)?;
        let path = forwarded.request_path()?;
        if !self.engine.is_ready() {
            return Err(EngineError::NotReady.into());
        }
        if filter.rule_set_for(&path).is_some() {
            self.check_lookalikes(filter, &forwarded)?;
        }
        let origin = Origin::with_headers(Listener::Api, &head.headers);
        let asking = EngineHandler::new(&self.engine, &origin);
        let mut response = Response::default();
        // Who asks is not the client: its address says nothing.
        match filter.evaluate(&asking, &forwarded, &path, None).await {
            FilterOutcome::Skipped => {}
            FilterOutcome::Allowed(decision) => {
                let headers = response.headers_mut();
                filter.families().write(&decision, headers);
            }
            FilterOutcome::Denied(decision) => {
                response = question.refuse(&decision, filter.failed_closed());
                let headers = response.headers_mut();
                filter.families().write(&decision, headers);
            }
            FilterOutcome::BadRequest(request) => return Err(bad(request)),
        }
        Ok(response)
    }

    /// Refuses a request with a header that differs only by `_` for `-` from one that is
    /// counted: here nobody can keep it from the server.
    fn check_lookalikes(&self, filter: &Filter, head: &Forwarded<'_>) -> Result<(), Problem> {
        let rules = self.engine.rules();
        let rules = rules.as_ref().zip(filter.rule_set_name());
        let rules = rules.and_then(|(rules, name)| rules.get(name));
        let names = rules.map_or(&[][..], |set| set.header_names());
        match filter.has_underscore_variant(head, names) {
            true => Err(bad(BadRequest::UnderscoreVariant)),
            false => Ok(()),
        }
    }
}

/// What is asked, and how a denial is to be told.
struct Question<'a> {
    filter: Option<Cow<'a, str>>,
    denied: StatusCode,
}

impl<'a> Question<'a> {
    fn read(query: &'a str) -> Result<Self, Problem> {
        let mut question = Self {
            filter: None,
            denied: StatusCode::TOO_MANY_REQUESTS,
        };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("filter", _) => question.filter = Some(value),
                ("denied", "403") => question.denied = StatusCode::FORBIDDEN,
                ("denied", "429") => question.denied = StatusCode::TOO_MANY_REQUESTS,
                ("denied", _) => return Err(Problem::bad_request("`denied` must be 403 or 429")),
                _ => {
                    return Err(Problem::bad_request(
                        "the query may hold `filter` and `denied` only",
                    ));
                }
            }
        }
        Ok(question)
    }

    /// The filter that is meant.
    fn filter<'f>(&self, api: &'f Api) -> Result<&'f Filter, Problem> {
        let missing = |detail: &str| Problem::new(StatusCode::NOT_FOUND, detail);
        match &self.filter {
            Some(name) => {
                let filter = api.filters.get(name);
                filter.ok_or_else(|| missing(&format!("there is no filter `{name}`")))
            }
            None if api.filters.is_empty() => Err(missing("the config has no `filters`")),
            None => {
                let filter = api.filters.only();
                filter.ok_or_else(|| Problem::bad_request("`filter` is missing"))
            }
        }
        .map(|filter| &**filter)
    }

    /// The answer to a request that is denied.
    fn refuse(&self, decision: &Decision, failed_closed: FailedClosedStatus) -> Response {
        let mut response = Response::default();
        if self.denied != StatusCode::TOO_MANY_REQUESTS {
            // A proxy that wants another status has an answer of its own, and takes any
            // third status for an error.
            *response.status_mut() = self.denied;
            if decision.outcome() == Outcome::FailedClosed {
                response.headers_mut().insert(OUTCOME, FAILED_CLOSED);
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
