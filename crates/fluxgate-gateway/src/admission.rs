//! The one admission policy: every request takes these steps, whichever transport read it.

mod calls;
mod messages;

use std::sync::Arc;

use bytes::Bytes;
use fluxgate_core::{Decision, Outcome};
use fluxgate_http::server::Origin;
use fluxgate_http::{
    FailedClosedStatus, Filter, FilterOutcome, GrpcCode, GrpcStatus, Handler, HeaderNames,
    HeldUntilDropped, INVALID_TOKEN_CHALLENGE, LimitHeaders, PROBLEM_JSON, RequestHead, are_alike,
    evaluate, write_denial,
};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use tracing::field::display;

use crate::config::{MAX_CALL_BODY, MAX_MCP_BODY};
use crate::engine::Engine;
use crate::error::GatewayError;
use crate::hop_by_hop::HeaderKind;
use crate::llm::{BodyBuffer, MeteredCall, ReadBody, llm_limit_headers};
use crate::mcp::{CallHeaders, CallIds, JSON};
use crate::received_request::ReceivedRequest;
use crate::rewrite::{allows_origin, preflight_headers, preflight_method};
use crate::routes::{AmbiguousRoute, Route, Routes};
use crate::upstream::Assignment;
use calls::CallPolicy;
use messages::{EvaluatedMessages, evaluate_messages};

/// A request that may be forwarded.
#[derive(Debug)]
pub(crate) struct Admission<'g> {
    pub(crate) route: &'g Arc<Route>,
    /// The slots of the request, until its response has ended.
    pub(crate) held: HeldUntilDropped,
    /// Whether a header that identifies the sender is repeated.
    pub(crate) repeats_identity: bool,
    /// The body to send, if it was read.
    pub(crate) body: Option<Bytes>,
    /// The call to a language model whose tokens are reserved.
    pub(crate) call: Option<Box<MeteredCall>>,
}

/// A request that the gateway answers itself.
#[derive(Debug)]
pub(crate) struct Refusal<'g> {
    /// The route, if the request has one.
    pub(crate) route: Option<&'g Arc<Route>>,
    cause: Cause,
    /// The calls of the Model Context Protocol that are refused, if the route reads them.
    refused_calls: Option<CallIds>,
}

#[derive(Debug)]
enum Cause {
    Denied(FailedClosedStatus),
    Error(GatewayError),
    /// Nothing is refused: a browser may send the request in question.
    Preflight,
}

/// Decides which requests are forwarded, and where to.
#[derive(Debug)]
pub(crate) struct AdmissionPolicy<E> {
    engine: Arc<E>,
    routes: Routes,
    calls: CallPolicy,
    /// The memory for bodies that are read before they are forwarded.
    bodies: Arc<BodyBuffer>,
}

/// Why a request is not forwarded, and its route, if it has one.
type RouteError<'g> = (GatewayError, Option<&'g Arc<Route>>);

impl<E: Engine> AdmissionPolicy<E> {
    pub(crate) fn new(engine: Arc<E>, routes: Routes, bodies: &Arc<BodyBuffer>) -> Self {
        Self {
            engine,
            routes,
            calls: CallPolicy::new(bodies),
            bodies: Arc::clone(bodies),
        }
    }

    /// Finds the route of a request and evaluates its filters, one after the other. Adds the
    /// headers of the response to `limit_headers`: decisions are too large to be handed on often.
    pub(crate) async fn admit<'g, H: RequestHead + Sync>(
        &'g self,
        request: &ReceivedRequest<'_, H>,
        body: &mut impl ReadBody,
        origin: &Origin<'_>,
        limit_headers: &mut LimitHeaders<Decision>,
    ) -> Result<Admission<'g>, Refusal<'g>> {
        let reject = |error, route: Option<&'g Arc<Route>>, limit_headers: &mut LimitHeaders<_>| {
            self.log_refusal(&error, origin, route.map(|route| &**route), None);
            *limit_headers = LimitHeaders::default();
            Refusal::new(error, route, limit_headers)
        };
        if let Some(answer) = self.answer_preflight(request, limit_headers) {
            let reject = |(error, route)| reject(error, Some(route), limit_headers);
            return Err(answer.unwrap_or_else(reject));
        }
        let (route, repeats_identity) = match self.route(request, origin) {
            Ok(found) => found,
            Err((error, route)) => return Err(reject(error, route, limit_headers)),
        };
        body.limit(route.max_body);
        if !route.filters.is_empty() && !self.engine.is_ready() {
            return Err(reject(GatewayError::NotReady, Some(route), limit_headers));
        }
        let mut held = HeldUntilDropped::default();
        let (mut read_body, mut metered) = (None, None);
        let mut calls = None;
        for (index, filter) in route.filters.iter().enumerate() {
            let handler = self.engine.handler(origin);
            let llm = route.llm.filter(|llm| llm.filter == index);
            let mut held_by = None;
            // The futures are large, and most routes have no calls.
            let (outcome, call) = if let Some(llm) = llm {
                let max = route.max_body.unwrap_or(MAX_CALL_BODY);
                let calls = &self.calls;
                Box::pin(calls.evaluate((llm, max), filter, &handler, request, body))
                    .await
                    .map_err(|error| reject(error, Some(route), limit_headers))?
            } else if route.mcp.is_some_and(|mcp| mcp.filter == index) {
                let max = route
                    .max_body
                    .map_or(MAX_MCP_BODY, |max| max.min(MAX_MCP_BODY));
                let engine = (&*self.engine, origin);
                let bodies = (&self.bodies, max);
                let evaluated = Box::pin(evaluate_messages(
                    engine, bodies, filter, &handler, request, body,
                ));
                let EvaluatedMessages {
                    outcome,
                    holder,
                    body,
                    ids,
                } = evaluated
                    .await
                    .map_err(|error| reject(error, Some(route), limit_headers))?;
                (read_body, calls, held_by) = (body, Some(ids), holder);
                (outcome, None)
            } else {
                (evaluate(filter, &handler, request.incoming()).await, None)
            };
            match outcome {
                FilterOutcome::Skipped => {}
                FilterOutcome::Allowed(decision) => {
                    let mut hold = handler.hold(held_by.as_ref().unwrap_or(&decision));
                    if let (Some(call), Some(llm)) = (call, llm) {
                        let observer = self.engine.call_observer();
                        let (sent, reserved) =
                            call.into_metered(&decision, hold, llm.on_abort, observer);
                        read_body = Some(sent);
                        hold = match reserved {
                            Ok(call) => {
                                metered = Some(Box::new(call));
                                None
                            }
                            Err(hold) => hold,
                        };
                    }
                    if let Some(hold) = hold {
                        held.push(hold);
                    }
                    limit_headers.push(filter.families(), decision);
                }
                FilterOutcome::Denied(decision) => {
                    if decision.outcome() == Outcome::Forbidden {
                        // Limits say nothing about a request that may never pass.
                        *limit_headers = LimitHeaders::default();
                    }
                    limit_headers.push(filter.families(), decision);
                    limit_headers.set_others(llm_limit_headers(limit_headers));
                    return Err(Refusal {
                        route: Some(route),
                        cause: Cause::Denied(filter.failed_closed()),
                        refused_calls: calls,
                    });
                }
                FilterOutcome::BadRequest(bad) => {
                    let error = GatewayError::Ambiguous(bad.reason());
                    return Err(reject(error, Some(route), limit_headers));
                }
                FilterOutcome::InvalidToken => {
                    let error = GatewayError::InvalidToken;
                    return Err(reject(error, Some(route), limit_headers));
                }
            }
        }
        if read_body.is_some() && route.llm.is_some() {
            limit_headers.set_others(llm_limit_headers(limit_headers));
        }
        Ok(Admission {
            route,
            held,
            repeats_identity,
            body: read_body,
            call: metered,
        })
    }

    /// Returns the answer to the question of a browser whether a page of another site may send a
    /// request, if this is one and its route says who may. Nothing is charged for it. The route is
    /// that of the request in question, as far as its method and its path tell.
    fn answer_preflight<'g, H: RequestHead>(
        &'g self,
        request: &ReceivedRequest<'_, H>,
        limit_headers: &mut LimitHeaders<Decision>,
    ) -> Option<Result<Refusal<'g>, (GatewayError, &'g Arc<Route>)>> {
        let method = preflight_method(request.head)?;
        let (head, path, host) = (request.head, request.path, request.host);
        let found = self.routes.find(head, method, path, host);
        let route = found.ok().flatten()?;
        let cors = route.cors.as_ref()?;
        if !allows_origin(cors, request.head) {
            return Some(Err((GatewayError::ForeignOrigin, route)));
        }
        limit_headers.set_others(preflight_headers(cors));
        Some(Ok(Refusal {
            route: Some(route),
            cause: Cause::Preflight,
            refused_calls: None,
        }))
    }

    /// Returns the route of a request, and whether the request repeats an identity.
    fn route<H: RequestHead>(
        &self,
        request: &ReceivedRequest<'_, H>,
        origin: &Origin<'_>,
    ) -> Result<(&Arc<Route>, bool), RouteError<'_>> {
        let found = self.routes.find(
            request.head,
            request.head.method(),
            request.path,
            request.host,
        );
        let route = match found {
            Ok(Some(route)) => route,
            Ok(None) => return Err((GatewayError::NoRoute, None)),
            Err(AmbiguousRoute) => {
                return Err((
                    GatewayError::Ambiguous("the two forms of the path match different routes"),
                    None,
                ));
            }
        };
        let ambiguous = |reason| (GatewayError::Ambiguous(reason), Some(route));
        if route.rewrite.is_ambiguous(request.path) {
            return Err(ambiguous(
                "only one of the two forms of the path has the prefix that is removed",
            ));
        }
        let repeats = route.repeats_identity(request.head);
        let repeats = repeats.map_err(|bad| ambiguous(bad.reason()))?;
        let mut options = request.connection.iter();
        if options.any(|name| self.reads_header(route, name, origin)) {
            return Err(ambiguous(
                "Connection names a header that requests are routed or counted by",
            ));
        }
        match (route.max_body, request.body_length) {
            (Some(max), Some(length)) if length > max => {
                Err((GatewayError::BodyTooLarge(max), Some(route)))
            }
            _ => Ok((route, repeats)),
        }
    }

    /// Returns whether requests are routed or counted by the header of this name. If `Connection`
    /// names it, the upstream would not get it, and would serve another request than the one that
    /// was counted.
    pub(crate) fn reads_header(&self, route: &Route, name: &[u8], origin: &Origin<'_>) -> bool {
        let Ok(name) = std::str::from_utf8(name) else {
            return false;
        };
        let reads = |filter: &Filter| {
            self.with_rule_headers(filter, origin, |names| filter.reads_header(name, names))
        };
        // `Connection` must name `Upgrade` and the like, whether or not a rule or route matches
        // them.
        let is_end_to_end = HeaderKind::of(name) == HeaderKind::EndToEnd;
        let mut filters = route.filters.iter();
        let mut is_read =
            || self.routes.matches_header(name) || filters.any(|filter| reads(filter));
        route.is_identity(name) || (is_end_to_end && (is_read() || is_call_header(route, name)))
    }

    /// Returns whether servers may take the header of this name for one that requests are routed
    /// or counted by, although it is not.
    pub(crate) fn is_alike_header(&self, route: &Route, name: &str, origin: &Origin<'_>) -> bool {
        let is_alike = |filter: &Filter| {
            self.with_rule_headers(filter, origin, |names| filter.is_alike_header(name, names))
        };
        let imitates_call = || {
            let mut names = CallHeaders::NAMES.iter();
            route.mcp.is_some()
                && !is_call_header(route, name)
                && names.any(|known| are_alike(known.as_bytes(), name.as_bytes()))
        };
        self.routes.has_alike_header(name)
            || route.filters.iter().any(|filter| is_alike(filter))
            || imitates_call()
    }

    /// Returns whether requests are routed or counted by a header whose name is not plain.
    pub(crate) fn reads_odd_headers(&self, route: &Route, origin: &Origin<'_>) -> bool {
        let reads_odd = |filter: &Filter| {
            self.with_rule_headers(filter, origin, |names| filter.reads_odd_headers(names))
        };
        self.routes.has_odd_header || route.filters.iter().any(|filter| reads_odd(filter))
    }

    /// Calls `test` with the headers that the rules of a filter read; `true` if they are unknown.
    fn with_rule_headers(
        &self,
        filter: &Filter,
        origin: &Origin<'_>,
        test: impl FnOnce(&[Box<str>]) -> bool,
    ) -> bool {
        let handler = self.engine.handler(origin);
        let rules = handler.rules(filter.rule_set_name().unwrap_or_default());
        match handler.header_names(&rules) {
            HeaderNames::Only(names) => test(names),
            HeaderNames::All => true,
        }
    }

    /// Returns all routes.
    pub(crate) fn routes(&self) -> &[Arc<Route>] {
        self.routes.all()
    }

    /// Logs why a request is not forwarded, unless the engine leaves it out.
    pub(crate) fn log_refusal(
        &self,
        error: &GatewayError,
        origin: &Origin<'_>,
        route: Option<&Route>,
        assignment: Option<&Assignment>,
    ) {
        if !self.engine.should_log() {
            return;
        }
        let status = error.status().as_u16();
        let why = display(error);
        let cause = std::error::Error::source(error).map(display);
        let route = route.map(|route| &*route.id);
        let upstream = assignment.map(|it| display(&it.upstream.target));
        let request_id = origin.request_id();
        if status >= 500 {
            tracing::warn!(
                status,
                route,
                upstream,
                why,
                cause,
                request_id,
                "not forwarded"
            );
        } else {
            tracing::info!(status, route, why, request_id, "not forwarded");
        }
    }
}

/// Returns whether a route reads calls from the header of this name.
fn is_call_header(route: &Route, name: &str) -> bool {
    let mut names = CallHeaders::NAMES.iter();
    route.mcp.is_some() && names.any(|known| known.eq_ignore_ascii_case(name))
}

impl<'g> Refusal<'g> {
    /// A request that fails with this error after the filters that have set these headers. Adds
    /// those of the error.
    pub(crate) fn new(
        error: GatewayError,
        route: Option<&'g Arc<Route>>,
        limit_headers: &mut LimitHeaders<Decision>,
    ) -> Self {
        if let Some(seconds) = error.retry_after() {
            limit_headers.set_others(vec![(RETRY_AFTER, seconds.into())]);
        } else if matches!(error, GatewayError::InvalidToken) {
            limit_headers.set_others(vec![(WWW_AUTHENTICATE, INVALID_TOKEN_CHALLENGE)]);
        }
        Self {
            route,
            cause: Cause::Error(error),
            refused_calls: None,
        }
    }

    /// Returns why the request is refused, unless a filter denies it.
    pub(crate) fn error(&self) -> Option<&GatewayError> {
        match &self.cause {
            Cause::Error(error) => Some(error),
            Cause::Denied(_) | Cause::Preflight => None,
        }
    }

    /// Returns whether the response has no content at all.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.cause, Cause::Preflight)
    }

    /// Returns the media type of the response.
    pub(crate) fn content_type(&self) -> HeaderValue {
        if self.refused_calls.is_some() {
            JSON
        } else {
            PROBLEM_JSON
        }
    }

    /// Appends the body of the response; returns its status. `limit_headers` are its headers.
    pub(crate) fn write_body(
        &self,
        limit_headers: &LimitHeaders<Decision>,
        body: &mut Vec<u8>,
    ) -> StatusCode {
        match (&self.cause, limit_headers.last()) {
            (Cause::Denied(failed_closed), Some(decision)) => match &self.refused_calls {
                Some(calls) => {
                    calls.write_denial(decision, body);
                    failed_closed.status_for(decision)
                }
                None => write_denial(decision, *failed_closed, body),
            },
            (Cause::Denied(_), None) => StatusCode::TOO_MANY_REQUESTS,
            (Cause::Preflight, _) => StatusCode::NO_CONTENT,
            (Cause::Error(error), _) => {
                error.problem().write(body);
                error.status()
            }
        }
    }

    /// Returns the status for a gRPC request, which gets no body.
    pub(crate) fn grpc_status(&self, limit_headers: &LimitHeaders<Decision>) -> GrpcStatus {
        match (&self.cause, limit_headers.reports().last()) {
            (Cause::Denied(failed_closed), Some((families, decision))) => {
                GrpcStatus::denied(decision, *failed_closed, *families)
            }
            (Cause::Denied(_), None) => {
                GrpcStatus::new(GrpcCode::ResourceExhausted, "the quota is used up")
            }
            (Cause::Preflight, _) => GrpcStatus::new(GrpcCode::Unknown, ""),
            (Cause::Error(error), _) => {
                GrpcStatus::of_error(error.status(), error.problem().detail().to_owned())
            }
        }
    }

    /// Returns whether the connection must close: the client may disagree on where a bad
    /// request ends.
    pub(crate) fn closes_connection(&self) -> bool {
        let Cause::Error(error) = &self.cause else {
            return false;
        };
        error.status() == StatusCode::BAD_REQUEST && !error.is_about_read_body()
    }
}
