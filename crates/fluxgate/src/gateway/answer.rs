//! From a client's request to its answer.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use fluxgate_core::{Decision, RequestPath};
use fluxgate_tower::{FailedClosedStatus, FilterOutcome, LimitHeaders, write_denial};
use http::header::{CONNECTION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use tokio_util::sync::CancellationToken;
use tracing::field::display;

use super::answer_body::AnswerBody;
use super::pulse::Pulse;
use super::routes::{Route, TwoRoutes, host_name};
use super::trouble::Trouble;
use super::tunnel::Slot;
use super::upstreams::Lease;
use super::{Gateway, streams, strict};
use crate::engine::EngineHandler;
use crate::http::{Listener, Origin, PROBLEM_JSON, REQUEST_ID, TRACEPARENT, request_id};
use crate::telemetry::RequestIds;

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    /// Who it is.
    pub(super) peer: SocketAddr,
    /// The port that it came to.
    pub(super) port: u16,
    pub(super) is_secure: bool,
    pub(super) pulse: Arc<Pulse>,
    pub(super) tunnels: Slot,
    pub(super) closing: CancellationToken,
}

/// Tells the connection, when it goes, that a body is left unread.
struct Unread<'a>(&'a Pulse, bool);

impl Unread<'_> {
    fn will_be_read(mut self) {
        self.1 = false;
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.leave_unread();
        }
    }
}

/// A request that is refused by its limits, and the status if that failed closed.
struct Refused(LimitHeaders<Decision>, FailedClosedStatus);

impl Gateway {
    /// Answers a request, whatever becomes of it.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        client: &Client,
    ) -> Response<AnswerBody> {
        let in_flight = client.pulse.begin();
        let is_http1 = request.version() < Version::HTTP_2;
        let id = request_id::of(request.headers());
        let traceparent = request.headers().get(TRACEPARENT).cloned();
        let mut response = self.respond(request, &id, client).await;
        let status = response.status();
        let known_by = || {
            let traceparent = traceparent.as_ref().and_then(|it| it.to_str().ok());
            RequestIds::new(id.to_str().unwrap_or_default(), traceparent)
        };
        let telemetry = self.engine.telemetry();
        telemetry.record_response(Listener::Gateway, status.as_u16(), known_by);
        response.headers_mut().insert(REQUEST_ID, id.clone());
        *response.version_mut() = Version::HTTP_11;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            client.tunnels.hold(in_flight);
            return response;
        }
        if !is_http1 {
            // HTTP/2 has its own way to say that the connection ends.
            response.headers_mut().remove(CONNECTION);
            return response.map(|body| streams::watched(body).holding(in_flight));
        }
        if client.closing.is_cancelled() {
            response.headers_mut().insert(CONNECTION, CLOSE);
        }
        response.map(|body| body.holding(in_flight))
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        id: &HeaderValue,
        client: &Client,
    ) -> Response<AnswerBody> {
        let (mut parts, body) = request.into_parts();
        // Filters tell the log of it by the same name.
        parts.headers.insert(REQUEST_ID, id.clone());
        let unread = Unread(&client.pulse, !body.is_end_stream());
        let routed = self.route(&parts, &body);
        let (path, host, route) = match routed {
            Ok(routed) => routed,
            Err(trouble) => return self.tell(&trouble, id, None, None),
        };
        let told = match self.judge(route, (&parts, &path), client).await {
            Ok(Ok(told)) => told,
            Ok(Err(refused)) => return refused.answer(),
            Err(trouble) => return self.tell(&trouble, id, Some(route), None),
        };
        unread.will_be_read();
        let outgoing = self.outgoing(parts, body, &host, route, client);
        let forwarded = self.forward(route, outgoing, &client.tunnels).await;
        let mut response = match forwarded {
            Ok(response) => response,
            Err((trouble, lease)) => self.tell(&trouble, id, Some(route), lease.as_ref()),
        };
        told.write(response.headers_mut());
        response
    }

    /// The path and host that a request is for, and its route.
    fn route<'p>(
        &self,
        parts: &'p Parts,
        body: &Incoming,
    ) -> Result<(RequestPath<'p>, String, &Route), Trouble> {
        let (path, host) = strict::check(parts)?;
        let found = self.routes.find(parts, &path, host_name(&host));
        let found = found.map_err(|TwoRoutes| Trouble::Ambiguous("the path has two routes"))?;
        let route = found.ok_or(Trouble::NoRoute)?;
        let checked = route.check_identity(parts);
        checked.map_err(|bad| Trouble::Ambiguous(bad.reason()))?;
        self.check_connection(route, parts)?;
        let most = self.limits.body_bytes.map(u64::from);
        match (most, body.size_hint().exact()) {
            (Some(most), Some(length)) if length > most => Err(Trouble::TooLarge(most)),
            _ => Ok((path, host, route)),
        }
    }

    /// Asks the filters of the route, one after the other.
    async fn judge(
        &self,
        route: &Route,
        (parts, path): (&Parts, &RequestPath<'_>),
        client: &Client,
    ) -> Result<Result<LimitHeaders<Decision>, Refused>, Trouble> {
        let mut told = LimitHeaders::default();
        if !self.is_ready_for(route) {
            return Err(Trouble::NotReady);
        }
        let origin = Origin::with_headers(Listener::Gateway, &parts.headers);
        for filter in &route.filters {
            let asking = EngineHandler::new(&self.engine, &origin);
            let peer = Some(client.peer.ip());
            match filter.evaluate(&asking, parts, path, peer).await {
                FilterOutcome::Skipped => {}
                FilterOutcome::Allowed(decision) => told.push(filter.families(), decision),
                FilterOutcome::Denied(decision) => {
                    told.push(filter.families(), decision);
                    return Ok(Err(Refused(told, filter.failed_closed())));
                }
                FilterOutcome::BadRequest(bad) => return Err(Trouble::Ambiguous(bad.reason())),
            }
        }
        Ok(Ok(told))
    }

    /// The answer that tells of trouble, of which the log is told, too.
    pub(super) fn tell(
        &self,
        trouble: &Trouble,
        id: &HeaderValue,
        route: Option<&Route>,
        lease: Option<&Lease>,
    ) -> Response<AnswerBody> {
        self.note(trouble, id.to_str().unwrap_or_default(), route, lease);
        let problem = trouble.problem();
        let mut body = Vec::new();
        problem.write(&mut body);
        let mut answer = answer(trouble.status(), body);
        if trouble.status() == StatusCode::BAD_REQUEST {
            // Where this request ends, its sender may see otherwise.
            answer.headers_mut().insert(CONNECTION, CLOSE);
        }
        answer
    }

    /// Tells the log of trouble, if it is worth a line. That of an upstream is ours
    /// as well.
    pub(super) fn note(
        &self,
        trouble: &Trouble,
        request_id: &str,
        route: Option<&Route>,
        lease: Option<&Lease>,
    ) {
        if !self.engine.telemetry().is_worth_a_line() {
            return;
        }
        let status = trouble.status().as_u16();
        let why = display(trouble);
        let cause = std::error::Error::source(trouble).map(display);
        let route = route.map(|route| &*route.id);
        let upstream = lease.map(|lease| display(&lease.upstream().target));
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

    /// Whether what the filters of a route ask can be decided.
    pub(super) fn is_ready_for(&self, route: &Route) -> bool {
        route.filters.is_empty() || self.engine.is_ready()
    }
}

impl Refused {
    fn answer(&self) -> Response<AnswerBody> {
        let mut body = Vec::new();
        let status = match self.0.last() {
            Some(decision) => write_denial(decision, self.1, &mut body),
            None => StatusCode::TOO_MANY_REQUESTS,
        };
        let mut response = answer(status, body);
        self.0.write(response.headers_mut());
        response
    }
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    response
}
