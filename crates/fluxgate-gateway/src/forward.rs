//! Forwards a request to an upstream of its route.

use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;

use crate::config::{Timeouts, UpstreamTarget};
use crate::error::GatewayError;
use crate::exchange::{Exchange, ExchangeError, OutgoingRequest, ResponseHead};
use crate::request_body::RequestBody;
use crate::routes::Route;
use crate::upstream::{Assignment, AttemptedUpstreams, ConnectionLimit, UpstreamStream, pool};

/// Sends requests to upstreams. There is one for all cores.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) timeouts: Timeouts,
    pub(crate) connections: Arc<ConnectionLimit>,
    /// How to connect over TLS, if an upstream needs it.
    pub(crate) tls: Option<Arc<ClientConfig>>,
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

/// The result of forwarding a request.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every value is a response"
)]
pub(crate) enum ForwardOutcome<T> {
    Response(UpstreamResponse<T>),
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

impl Forwarder {
    /// Tries the upstreams of the route until one of them has been sent part of the request.
    /// `on_head` gets the head of the response and an output buffer.
    pub(crate) async fn forward<T>(
        &self,
        route: &Route,
        mut request: OutgoingRequest<'_>,
        mut on_head: impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<ForwardOutcome<T>, ForwardError> {
        if let Some(body) = &mut request.body
            && body.needs_permit().await.map_err(ForwardError::unsent)?
        {
            let permit = self
                .connections
                .acquire_open_body(self.timeouts.connect)
                .await;
            body.hold(permit.map_err(ForwardError::unsent)?);
        }
        let mut tried = AttemptedUpstreams::new();
        let mut last = None;
        while let Some(assignment) = route.upstreams.assign(&tried) {
            if assignment.upstream.target == UpstreamTarget::Echo {
                return Ok(ForwardOutcome::Echo(request.body.take()));
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
                    if failure.is_fault {
                        assignment.failed();
                    }
                    tried.push(assignment.upstream.number);
                    last = Some(ForwardError {
                        error: failure.error,
                        assignment: Some(assignment),
                        is_sent: failure.is_sent,
                    });
                    if !failure.may_try_next {
                        break;
                    }
                }
            }
        }
        // A route has at least one upstream, so one has failed.
        Err(last.unwrap_or_else(|| ForwardError::unsent(GatewayError::NoRoute)))
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
                Err(ExchangeError::Sent(error)) => {
                    // A server may close an idle connection at any time, also while a request
                    // is on its way. The request may have been acted upon, so it is not sent
                    // again.
                    let is_closed = matches!(error, GatewayError::NoResponse(_));
                    return Err(AttemptFailure {
                        is_fault: error.status().is_server_error() && !is_closed,
                        is_sent: true,
                        may_try_next: false,
                        error,
                    });
                }
            }
        }
        let stream = self.connect(assignment).await?;
        let begun = Exchange::begin(stream, request, &self.timeouts, on_head).await;
        begun.map_err(|error| {
            let (error, is_sent) = match error {
                ExchangeError::Unsent(error) => (GatewayError::NoResponse(error), false),
                ExchangeError::Sent(error) => (error, true),
            };
            AttemptFailure {
                is_fault: error.status().is_server_error(),
                is_sent,
                may_try_next: !is_sent,
                error,
            }
        })
    }

    async fn connect(&self, assignment: &Assignment) -> Result<UpstreamStream, AttemptFailure> {
        let timeout = self.timeouts.connect;
        let permit = self.connections.acquire(timeout).await;
        let permit = permit.map_err(|error| AttemptFailure {
            error,
            is_sent: false,
            may_try_next: false,
            is_fault: false,
        })?;
        let connect = assignment
            .upstream
            .connect(permit, self.tls.as_ref(), timeout);
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
