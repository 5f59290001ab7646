//! Forwards a request to an upstream of its route.

mod multiplexed;
mod retry;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quanta::Instant;

use crate::config::{HostRewrite, Timeouts};
use crate::error::GatewayError;
use crate::exchange::{
    Exchange, ExchangeError, ExpectedResponse, Http2Exchange, OutgoingRequest, ResponseHead,
};
use crate::request_body::RequestBody;
use crate::rewrite::with_host;
use crate::routes::Route;
use crate::upstream::{
    Assignment, AttemptedUpstreams, Carrier, ConnectionLimit, Protocol, TlsClients, Upstream,
    UpstreamStream, pool,
};
use retry::Retry;

/// Sends requests to upstreams. There is one for all cores.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) connections: Arc<ConnectionLimit>,
    /// How to connect over TLS.
    pub(crate) tls: TlsClients,
}

/// How often a request was tried, and how long the last attempt took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) count: u32,
    /// From the start of the last attempt to the head of its response, or to its failure.
    pub(crate) last: Option<Duration>,
}

/// A response whose head has been read.
#[derive(Debug)]
pub(crate) struct UpstreamResponse<T> {
    pub(crate) exchange: Exchange,
    /// What was made of the head.
    pub(crate) head: T,
    /// Counts the request as outstanding.
    pub(crate) assignment: Assignment,
    pub(crate) attempts: Attempts,
}

/// A response over HTTP/2 whose head has been read.
#[derive(Debug)]
pub(crate) struct Http2Response<T> {
    pub(crate) exchange: Http2Exchange,
    /// What was made of the head.
    pub(crate) head: T,
    /// Counts the request as outstanding.
    pub(crate) assignment: Assignment,
    pub(crate) attempts: Attempts,
}

/// The result of forwarding a request.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every value is a response"
)]
pub(crate) enum ForwardOutcome<T> {
    Response(UpstreamResponse<T>),
    Http2(Box<Http2Response<T>>),
    /// The gateway itself answers with a description of the request.
    Echo(Option<Box<RequestBody>>),
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) struct ForwardError {
    pub(crate) error: GatewayError,
    /// The upstream that failed last.
    pub(crate) assignment: Option<Assignment>,
    /// Whether an upstream may have read part of the request, and acted upon it.
    pub(crate) is_sent: bool,
    pub(crate) attempts: Attempts,
}

impl ForwardError {
    /// The request did not get as far as an upstream.
    pub(crate) fn unsent(error: GatewayError) -> Self {
        Self {
            error,
            assignment: None,
            is_sent: false,
            attempts: Attempts::default(),
        }
    }
}

/// Why an upstream has not responded.
struct AttemptFailure {
    error: GatewayError,
    /// Whether part of the request was sent.
    is_sent: bool,
    /// Whether another upstream may get the request.
    may_try_next: bool,
    /// Whether the upstream is to blame.
    is_fault: bool,
}

/// A request whose response has begun.
enum Sent<T> {
    Http1(Exchange, T),
    Http2(Http2Exchange, T),
}

impl<T> Sent<T> {
    fn status(&self) -> u16 {
        match self {
            Self::Http1(exchange, _) => exchange.status,
            Self::Http2(exchange, _) => exchange.status,
        }
    }
}

impl AttemptFailure {
    /// The failure of a request over a connection that was idle. A server may close such a
    /// connection at any time, also while a request is on its way. The request may have been acted
    /// upon, so it is not sent again.
    fn on_reused(error: GatewayError) -> Self {
        let is_closed = matches!(error, GatewayError::NoResponse(_));
        Self {
            is_fault: error.status().is_server_error() && !is_closed,
            is_sent: true,
            may_try_next: false,
            error,
        }
    }

    /// Returns whether the upstream has failed, and not the client or the gateway itself.
    fn is_of_upstream(&self) -> bool {
        self.is_fault || (self.is_sent && self.error.status().is_server_error())
    }

    /// The failure of a request over a new connection.
    fn on_new(error: ExchangeError) -> Self {
        let (error, is_sent) = match error {
            ExchangeError::Unsent(error) => (GatewayError::NoResponse(error), false),
            ExchangeError::Sent(error) => (error, true),
        };
        Self {
            is_fault: error.status().is_server_error(),
            is_sent,
            may_try_next: !is_sent,
            error,
        }
    }
}

impl Forwarder {
    /// Tries the upstreams of the route until one of them has been sent part of the request, or as
    /// often as the route says. `on_head` gets the head of the response and an output buffer.
    pub(crate) async fn forward<T>(
        &self,
        route: &Route,
        request: OutgoingRequest<'_>,
        mut on_head: impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<ForwardOutcome<T>, ForwardError> {
        let OutgoingRequest {
            bytes,
            mut body,
            wanted,
            needs_http2,
        } = request;
        let timeouts = &route.timeouts;
        let names_upstream = route.rewrite.host == HostRewrite::Upstream;
        let retry = Retry::of(route, bytes, body.is_none());
        let mut tried = AttemptedUpstreams::new();
        let mut attempts = Attempts::default();
        let mut last = None;
        loop {
            let assignment = match route.upstreams.assign(&tried) {
                Some(assignment) => assignment,
                // All were tried, and the route wants more attempts.
                None if retry.is_some() && !tried.is_empty() => {
                    tried.clear();
                    continue;
                }
                None => break,
            };
            let protocol = assignment.upstream.protocol;
            if protocol == Protocol::Echo {
                return Ok(ForwardOutcome::Echo(body));
            }
            if attempts.count > 0 {
                route.counts.retries.fetch_add(1, Ordering::Relaxed);
            }
            attempts.count += 1;
            let count = attempts.count;
            // `None` for a response that another attempt replaces.
            let mut on_final_head = |head: &ResponseHead<'_>, out: &mut Vec<u8>| {
                let is_final = retry.is_none_or(|it| !it.permits_instead(count, head.status));
                is_final.then(|| on_head(head, out))
            };
            let own_host =
                names_upstream.then(|| with_host(bytes, &assignment.upstream.target.authority()));
            let mut request = OutgoingRequest {
                bytes: own_host.as_deref().unwrap_or(bytes),
                body: body.take(),
                wanted,
                needs_http2,
            };
            let started = Instant::now();
            let sent = if protocol == Protocol::Http1 && !needs_http2 {
                if request.body.is_some() {
                    let carrier = Carrier::Connection;
                    let permit = self.permit_open_body(&mut request, carrier, timeouts).await;
                    permit.map_err(ForwardError::unsent)?;
                }
                let sent = self.send(&assignment, &mut request, timeouts, &mut on_final_head);
                sent.await
                    .map(|(exchange, head)| Sent::Http1(exchange, head))
            } else {
                // The future is large, and most requests go over HTTP/1.1.
                let sent =
                    self.send_multiplexed(&assignment, &mut request, timeouts, &mut on_final_head);
                Box::pin(sent).await
            };
            // What was not sent is still there.
            body = request.body.take();
            let took = Instant::now().saturating_duration_since(started);
            attempts.last = Some(took);
            let of_route = &assignment.upstream.of_route;
            let failure = match sent {
                Ok(sent) => {
                    of_route.count_response(sent.status(), took);
                    assignment.succeeded();
                    match sent {
                        Sent::Http1(exchange, Some(head)) => {
                            return Ok(ForwardOutcome::Response(UpstreamResponse {
                                exchange,
                                head,
                                assignment,
                                attempts,
                            }));
                        }
                        Sent::Http2(exchange, Some(head)) => {
                            return Ok(ForwardOutcome::Http2(Box::new(Http2Response {
                                exchange,
                                head,
                                assignment,
                                attempts,
                            })));
                        }
                        Sent::Http1(_, None) | Sent::Http2(_, None) => {
                            tried.push(assignment.upstream.number);
                            continue;
                        }
                    }
                }
                Err(failure) => failure,
            };
            let is_upstream = failure.is_of_upstream();
            let error = &failure.error;
            if is_upstream {
                of_route.count_response(error.status().as_u16(), took);
            }
            if failure.is_fault {
                assignment.failed(error.ejection_cause(), || error.with_cause());
            }
            let may_try_again = match &retry {
                // A body that was taken in part cannot be sent again.
                Some(retry) if is_upstream => {
                    (failure.is_sent || failure.may_try_next)
                        && retry.permits_after(count, error, failure.is_sent)
                }
                Some(retry) => failure.may_try_next && retry.has_attempts(count),
                None => failure.may_try_next,
            };
            tried.push(assignment.upstream.number);
            last = Some(ForwardError {
                error: failure.error,
                assignment: Some(assignment),
                is_sent: failure.is_sent,
                attempts,
            });
            if !may_try_again {
                break;
            }
        }
        // A route has at least one upstream, so one has failed.
        Err(last.unwrap_or_else(|| ForwardError::unsent(GatewayError::NoRoute)))
    }

    /// Sends a health check to an upstream; returns the status of the response.
    pub(crate) async fn check(
        &self,
        upstream: &Arc<Upstream>,
        request: &[u8],
        timeouts: &Timeouts,
    ) -> Result<u16, GatewayError> {
        let assignment = Assignment::of_check(upstream);
        let mut request = OutgoingRequest {
            bytes: request,
            body: None,
            wanted: ExpectedResponse::default(),
            needs_http2: false,
        };
        let mut on_head = |_: &ResponseHead<'_>, _: &mut Vec<u8>| ();
        let sent = if upstream.protocol == Protocol::Http1 {
            let sent = self.send(&assignment, &mut request, timeouts, &mut on_head);
            sent.await.map(|(exchange, ())| exchange.status)
        } else {
            let sent = self.send_multiplexed(&assignment, &mut request, timeouts, &mut on_head);
            Box::pin(sent).await.map(|sent| sent.status())
        };
        sent.map_err(|failure| failure.error)
    }

    /// Waits until a request may hold its carrier, if its body is incomplete.
    async fn permit_open_body(
        &self,
        request: &mut OutgoingRequest<'_>,
        carrier: Carrier,
        timeouts: &Timeouts,
    ) -> Result<(), GatewayError> {
        if let Some(body) = &mut request.body
            && body.needs_permit().await?
        {
            let permit = self
                .connections
                .acquire_open_body(carrier, timeouts.connect);
            body.hold(permit.await?);
        }
        Ok(())
    }

    /// Sends a request to one upstream: over an idle connection, or else over a new one.
    async fn send<T>(
        &self,
        assignment: &Assignment,
        request: &mut OutgoingRequest<'_>,
        timeouts: &Timeouts,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<(Exchange, T), AttemptFailure> {
        let upstream = &assignment.upstream;
        while let Some(stream) = pool::take(upstream) {
            match Exchange::begin(stream, request, timeouts, on_head).await {
                Ok(begun) => return Ok(begun),
                Err(ExchangeError::Unsent(_)) => {}
                Err(ExchangeError::Sent(error)) => return Err(AttemptFailure::on_reused(error)),
            }
        }
        let stream = self.connect(assignment, timeouts, false).await?;
        let begun = Exchange::begin(stream, request, timeouts, on_head).await;
        begun.map_err(AttemptFailure::on_new)
    }

    /// Opens a connection; over TLS, one for HTTP/1.1 only if `http1_only` says so.
    async fn connect(
        &self,
        assignment: &Assignment,
        timeouts: &Timeouts,
        http1_only: bool,
    ) -> Result<UpstreamStream, AttemptFailure> {
        let timeout = timeouts.connect;
        let permit = self.connections.acquire(timeout).await;
        let permit = permit.map_err(|error| AttemptFailure {
            error,
            is_sent: false,
            may_try_next: false,
            is_fault: false,
        })?;
        let upstream = &assignment.upstream;
        let tls = self.tls.of(&upstream.target, http1_only);
        let connect = upstream.connect(permit, tls, timeout);
        // The future is large, and most requests use an idle connection.
        let stream = Box::pin(connect).await;
        stream.map_err(|error| AttemptFailure {
            error: GatewayError::connecting(error),
            is_sent: false,
            may_try_next: true,
            is_fault: true,
        })
    }
}
