//! Forwards a request to an upstream of its route.

mod multiplexed;

use std::sync::Arc;

use crate::config::Timeouts;
use crate::error::GatewayError;
use crate::exchange::{Exchange, ExchangeError, Http2Exchange, OutgoingRequest, ResponseHead};
use crate::request_body::RequestBody;
use crate::routes::Route;
use crate::upstream::{
    Assignment, AttemptedUpstreams, ConnectionLimit, Protocol, TlsClients, UpstreamStream, pool,
};

/// Sends requests to upstreams. There is one for all cores.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) timeouts: Timeouts,
    pub(crate) connections: Arc<ConnectionLimit>,
    /// How to connect over TLS.
    pub(crate) tls: TlsClients,
}

/// A response whose head has been read.
#[derive(Debug)]
pub(crate) struct UpstreamResponse<T> {
    pub(crate) exchange: Exchange,
    /// What was made of the head.
    pub(crate) head: T,
    /// Counts the request as outstanding.
    pub(crate) assignment: Assignment,
}

/// A response over HTTP/2 whose head has been read.
#[derive(Debug)]
pub(crate) struct Http2Response<T> {
    pub(crate) exchange: Http2Exchange,
    /// What was made of the head.
    pub(crate) head: T,
    /// Counts the request as outstanding.
    pub(crate) assignment: Assignment,
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
}

impl ForwardError {
    /// The request did not get as far as an upstream.
    pub(crate) fn unsent(error: GatewayError) -> Self {
        Self {
            error,
            assignment: None,
            is_sent: false,
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

/// Records that an upstream failed; returns whether another may be tried.
fn failed(
    failure: AttemptFailure,
    assignment: Assignment,
    tried: &mut AttemptedUpstreams,
    last: &mut Option<ForwardError>,
) -> bool {
    if failure.is_fault {
        assignment.failed();
    }
    tried.push(assignment.upstream.number);
    *last = Some(ForwardError {
        error: failure.error,
        assignment: Some(assignment),
        is_sent: failure.is_sent,
    });
    failure.may_try_next
}

impl Forwarder {
    /// Tries the upstreams of the route until one of them has been sent part of the request.
    /// `on_head` gets the head of the response and an output buffer.
    pub(crate) async fn forward<T>(
        &self,
        route: &Route,
        mut request: OutgoingRequest<'_>,
        mut on_head: impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<ForwardOutcome<T>, ForwardError> {
        let mut tried = AttemptedUpstreams::new();
        let mut last = None;
        while let Some(assignment) = route.upstreams.assign(&tried) {
            let protocol = assignment.upstream.protocol;
            if protocol != Protocol::Http1 || request.needs_http2 {
                if protocol == Protocol::Echo {
                    return Ok(ForwardOutcome::Echo(request.body.take()));
                }
                // The future is large, and most requests go over HTTP/1.1.
                let sending = self.send_multiplexed(assignment, &mut request, &mut on_head);
                match Box::pin(sending).await {
                    Ok(outcome) => return Ok(outcome),
                    Err((failure, assignment)) => {
                        if !failed(failure, assignment, &mut tried, &mut last) {
                            break;
                        }
                    }
                }
                continue;
            }
            if request.body.is_some() {
                let permit = self.permit_open_body(&mut request).await;
                permit.map_err(ForwardError::unsent)?;
            }
            match self.send(&assignment, &mut request, &mut on_head).await {
                Ok((exchange, head)) => {
                    assignment.succeeded();
                    return Ok(ForwardOutcome::Response(UpstreamResponse {
                        exchange,
                        head,
                        assignment,
                    }));
                }
                Err(failure) => {
                    if !failed(failure, assignment, &mut tried, &mut last) {
                        break;
                    }
                }
            }
        }
        // A route has at least one upstream, so one has failed.
        Err(last.unwrap_or_else(|| ForwardError::unsent(GatewayError::NoRoute)))
    }

    /// Waits until a request may hold a connection, if its body is incomplete.
    async fn permit_open_body(
        &self,
        request: &mut OutgoingRequest<'_>,
    ) -> Result<(), GatewayError> {
        if let Some(body) = &mut request.body
            && body.needs_permit().await?
        {
            let timeout = self.timeouts.connect;
            body.hold(self.connections.acquire_open_body(timeout).await?);
        }
        Ok(())
    }

    /// Sends a request to one upstream: over an idle connection, or else over a new one.
    async fn send<T>(
        &self,
        assignment: &Assignment,
        request: &mut OutgoingRequest<'_>,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<(Exchange, T), AttemptFailure> {
        let upstream = &assignment.upstream;
        while let Some(stream) = pool::take(upstream.number) {
            match Exchange::begin(stream, request, &self.timeouts, on_head).await {
                Ok(begun) => return Ok(begun),
                Err(ExchangeError::Unsent(_)) => {}
                Err(ExchangeError::Sent(error)) => return Err(AttemptFailure::on_reused(error)),
            }
        }
        let stream = self.connect(assignment, false).await?;
        let begun = Exchange::begin(stream, request, &self.timeouts, on_head).await;
        begun.map_err(AttemptFailure::on_new)
    }

    /// Opens a connection; over TLS, one for HTTP/1.1 only if `http1_only` says so.
    async fn connect(
        &self,
        assignment: &Assignment,
        http1_only: bool,
    ) -> Result<UpstreamStream, AttemptFailure> {
        let timeout = self.timeouts.connect;
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
