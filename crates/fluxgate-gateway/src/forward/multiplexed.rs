//! Forwards a request to an upstream that speaks HTTP/2, or may speak it.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use tokio::time::Instant;

use super::{AttemptFailure, Forwarder, Sent};
use crate::config::Timeouts;
use crate::error::GatewayError;
use crate::exchange::{
    Exchange, ExchangeError, Http2Error, Http2Exchange, OutgoingRequest, ResponseHead,
};
use crate::upstream::http2::{DialFailure, Http2Connection, Http2Pool, StreamSlot};
use crate::upstream::{Assignment, Carrier, Protocol, Upstream, UpstreamStream, pool};

/// How often a request is sent to a server that refuses it unprocessed.
const MAX_REFUSALS: usize = 3;

/// What a request is sent over.
enum Way {
    Http2(StreamSlot),
    /// A connection over HTTP/1.1, and whether it was idle.
    Http1(UpstreamStream, bool),
}

impl Forwarder {
    /// Sends a request to one upstream: over HTTP/2 if the upstream speaks it.
    pub(super) async fn send_multiplexed<T>(
        &self,
        assignment: &Assignment,
        request: &mut OutgoingRequest<'_>,
        timeouts: &Timeouts,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<Sent<T>, AttemptFailure> {
        let upstream = &assignment.upstream;
        if upstream.protocol == Protocol::Http1 {
            return Err(impossible(GatewayError::NeedsHttp2));
        }
        let is_upgrade = request.wanted.upgrade;
        if is_upgrade && upstream.protocol == Protocol::Http2 {
            return Err(impossible(GatewayError::NeedsHttp1));
        }
        let scheme = match upstream.protocol {
            Protocol::Negotiated => Scheme::HTTPS,
            _ => Scheme::HTTP,
        };
        let mut refusals = 0;
        loop {
            let (stream, is_idle) = match self.way(assignment, timeouts, is_upgrade).await? {
                Way::Http1(..) if request.needs_http2 => {
                    return Err(impossible(GatewayError::NeedsHttp2));
                }
                Way::Http1(stream, is_idle) => (stream, is_idle),
                Way::Http2(slot) => {
                    let carrier = Carrier::Stream;
                    let permit = self.permit_open_body(request, carrier, timeouts).await;
                    permit.map_err(impossible)?;
                    let scheme = scheme.clone();
                    let begun = Http2Exchange::begin(slot, scheme, request, timeouts, on_head);
                    match begun.await {
                        Ok((exchange, head)) => return Ok(Sent::Http2(exchange, head)),
                        Err(Http2Error::Refused(_)) if refusals + 1 < MAX_REFUSALS => {
                            refusals += 1;
                            continue;
                        }
                        Err(error) => return Err(failure_of(error)),
                    }
                }
            };
            let carrier = Carrier::Connection;
            let permit = self.permit_open_body(request, carrier, timeouts).await;
            permit.map_err(impossible)?;
            match Exchange::begin(stream, request, timeouts, on_head).await {
                Ok((exchange, head)) => return Ok(Sent::Http1(exchange, head)),
                Err(ExchangeError::Unsent(_)) if is_idle => {}
                Err(ExchangeError::Sent(error)) if is_idle => {
                    return Err(AttemptFailure::on_reused(error));
                }
                Err(error) => return Err(AttemptFailure::on_new(error)),
            }
        }
    }

    /// Finds a way to the upstream: a place on an open connection, or a new connection.
    async fn way(
        &self,
        assignment: &Assignment,
        timeouts: &Timeouts,
        http1_only: bool,
    ) -> Result<Way, AttemptFailure> {
        let upstream = &assignment.upstream;
        let pool = Http2Pool::of(upstream);
        // Connecting may take as long, and before that waiting for a permit.
        let until = Instant::now() + 2 * timeouts.connect;
        let mut dialed = None;
        loop {
            let changed = pool.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // What changes from now on is noticed.
            changed.as_mut().enable();
            if !http1_only && let Some(slot) = pool.reserve() {
                return Ok(Way::Http2(slot));
            }
            if upstream.protocol == Protocol::Negotiated {
                if let Some(stream) = pool::take(upstream) {
                    return Ok(Way::Http1(stream, true));
                }
                if http1_only {
                    let stream = self.connect(assignment, timeouts, true).await?;
                    return Ok(Way::Http1(stream, false));
                }
                if upstream.chose_http1() {
                    let stream = self.connect(assignment, timeouts, false).await?;
                    upstream.record_choice(&stream);
                    if !stream.chose_http2() {
                        return Ok(Way::Http1(stream, false));
                    }
                    let added = add(&pool, stream, timeouts.connect).await;
                    added.map_err(|failure| unreached(&failure))?;
                    continue;
                }
            }
            if let Some(failure) = dialed.and_then(|number| pool.failure_of(number)) {
                return Err(unreached(&failure));
            }
            let (number, attempt) = pool.dial();
            dialed = Some(number);
            if let Some(attempt) = attempt {
                let dial = self.dial(upstream, timeouts.connect, Arc::clone(&pool));
                // It goes on if this client leaves, because others wait for it, too.
                tokio::spawn(async move { attempt.finish(dial.await) });
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                return Err(AttemptFailure {
                    error: GatewayError::Busy,
                    is_sent: false,
                    may_try_next: true,
                    is_fault: false,
                });
            }
        }
    }

    /// Returns a future that opens a connection and puts it where requests find it.
    fn dial(
        &self,
        upstream: &Arc<Upstream>,
        timeout: Duration,
        pool: Arc<Http2Pool>,
    ) -> impl Future<Output = Result<(), DialFailure>> + Send + use<> {
        let upstream = Arc::clone(upstream);
        let connections = Arc::clone(&self.connections);
        let tls = self.tls.of(&upstream.target, false).cloned();
        async move {
            let permit = connections.acquire(timeout).await;
            let permit = permit.map_err(|_| DialFailure::Busy)?;
            let stream = upstream.connect(permit, tls.as_ref(), timeout).await;
            let stream = stream.map_err(|error| DialFailure::connecting(&error))?;
            if upstream.protocol == Protocol::Negotiated {
                upstream.record_choice(&stream);
                if !stream.chose_http2() {
                    pool::put(&upstream, stream, &connections);
                    return Ok(());
                }
            }
            add(&pool, stream, timeout).await
        }
    }
}

/// Begins HTTP/2 on a new connection, and adds it to the others.
async fn add(
    pool: &Http2Pool,
    stream: UpstreamStream,
    timeout: Duration,
) -> Result<(), DialFailure> {
    let opening = Http2Connection::open(stream, Arc::clone(&pool.changed));
    let connection = match tokio::time::timeout(timeout, opening).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            tracing::debug!(%error, "an upstream does not begin HTTP/2");
            return Err(DialFailure::Unusable("it does not begin HTTP/2"));
        }
        Err(_) => return Err(DialFailure::Unusable("it sends no settings of HTTP/2")),
    };
    if !connection.is_open() {
        return Err(DialFailure::Unusable("it takes no requests over HTTP/2"));
    }
    pool.insert(connection);
    Ok(())
}

/// The failure of a request that was not sent because the upstream cannot be reached.
fn unreached(failure: &DialFailure) -> AttemptFailure {
    let is_busy = matches!(failure, DialFailure::Busy);
    AttemptFailure {
        error: failure.error(),
        is_sent: false,
        may_try_next: !is_busy,
        is_fault: !is_busy,
    }
}

/// The failure of a request that this upstream cannot get, or that may not be sent at all.
fn impossible(error: GatewayError) -> AttemptFailure {
    AttemptFailure {
        may_try_next: matches!(error, GatewayError::NeedsHttp1 | GatewayError::NeedsHttp2),
        error,
        is_sent: false,
        is_fault: false,
    }
}

fn failure_of(error: Http2Error) -> AttemptFailure {
    let (error, is_sent, may_try_next, is_fault) = match error {
        Http2Error::Refused(error) => (error, false, true, true),
        Http2Error::RefusedInPart(error) => (error, false, false, true),
        Http2Error::Sent { error, is_fault } => (error, true, false, is_fault),
        Http2Error::Impossible(error) => (error, false, false, false),
    };
    AttemptFailure {
        error,
        is_sent,
        may_try_next,
        is_fault,
    }
}
