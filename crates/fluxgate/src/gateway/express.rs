//! Plain requests, forwarded without the way through an HTTP library, by which a
//! quarter to a third fewer can be forwarded.
//!
//! A plain request is one of HTTP/1.1 that is there as a whole, or whose body
//! follows in a moment, that can be read in one way only, and that has nothing
//! about it that needs more than to be passed on: most requests are of this kind.
//! At the first that is not, what has been read is handed on, and the library
//! serves the connection from there: so there is one place that knows HTTP in full.

mod answer;
mod body;
mod chunks;
mod client;
mod exchange;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod idle;
mod patience;
mod request;
mod write;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use fluxgate_tower::{FilterOutcome, LimitHeaders, RequestHead as _, write_denial};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::Gateway;
use super::routes::host_name;
use super::trouble::Trouble;
use crate::engine::EngineHandler;
use crate::http::{INPUT, Listener, Origin, close_gracefully};
use client::Client;
pub(super) use idle::{close_expired, close_oldest};
use request::PlainRequest;

/// A connection of which plain requests are forwarded.
struct Express<'g> {
    gateway: &'g Gateway,
    client: Client,
    peer: SocketAddr,
    /// The port that it came to.
    port: u16,
    closing: &'g CancellationToken,
}

/// What has come of a request.
enum Done {
    /// It was answered, and the next may come.
    Answered,
    /// It was answered, and the client was told that this is the last answer.
    Last,
    /// The connection is at its end.
    Ended,
    /// It is not as plain as it seemed, and nothing has been done about it.
    NotPlain,
}

/// Forwards plain requests, of which the first must begin `within` so long. What is
/// given back was read of the first request that is none; `None` says that the
/// connection has ended.
pub(super) async fn serve(
    stream: TcpStream,
    (peer, port): (SocketAddr, u16),
    gateway: &Gateway,
    closing: &CancellationToken,
    within: Duration,
) -> Option<(TcpStream, Vec<u8>)> {
    let client = Client::new(stream, closing, &gateway.timeouts, within);
    let mut express = Express {
        gateway,
        client,
        peer,
        port,
        closing,
    };
    loop {
        let (mut buffers, mut read) = express.client.receive().await?;
        let mut start = 0;
        while start < read {
            let input = &buffers.input[start..read];
            let Some(request) = PlainRequest::parse(input) else {
                let end = PlainRequest::length_of(input).map(|length| start + length);
                let Some(end) = end.filter(|end| *end <= INPUT) else {
                    break;
                };
                let stream = &mut express.client.stream;
                read = buffers.read_on(stream, read, end).await;
                express.client.is_last |= closing.is_cancelled();
                if read < end {
                    break;
                }
                continue;
            };
            let room = (&mut buffers.output, &mut buffers.json);
            match express.answer(&request, room).await {
                Done::Answered => start += request.length,
                Done::Last => {
                    // It has been answered, whether it reads that or not.
                    let _ = close_gracefully(express.client.stream).await;
                    return None;
                }
                Done::Ended => return None,
                Done::NotPlain => break,
            }
        }
        if start < read {
            let rest = buffers.input[start..read].to_vec();
            return Some((express.client.stream, rest));
        }
        buffers.release();
    }
}

impl Express<'_> {
    /// Answers a request, in whatever way.
    async fn answer(
        &mut self,
        request: &PlainRequest<'_>,
        (out, text): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Done {
        let gateway = self.gateway;
        let host = host_name(request.host);
        let Ok(Some(route)) = gateway.routes.find(request, &request.path, host) else {
            return Done::NotPlain;
        };
        let exceeds = |length: usize, most: Option<NonZeroU64>| {
            most.is_some_and(|most| length as u64 > most.get())
        };
        let limits = &gateway.limits;
        let is_too_large = exceeds(request.head, limits.header_bytes)
            || exceeds(request.body.len(), limits.body_bytes);
        let is_plain = route.is_plain && !is_too_large && !route.repeats_identity(request);
        if !is_plain || !gateway.is_ready_for(route) {
            return Done::NotPlain;
        }
        let text_of = |name| request.header(name);
        let origin = Origin::with_ids(
            Listener::Gateway,
            text_of(write::REQUEST_ID),
            text_of("traceparent"),
        );
        let mut told = LimitHeaders::default();
        for filter in &route.filters {
            let asking = EngineHandler::new(&gateway.engine, &origin);
            let peer = Some(self.peer.ip());
            let path = &request.path;
            let Some(rules) = filter.rules_for(&asking, path) else {
                continue;
            };
            let judgement = match filter.try_evaluate(&asking, &rules, request, path, peer) {
                Ok(judgement) => judgement,
                Err(unsettled) => {
                    let judged = Box::pin(filter.evaluate_pending(&asking, unsettled));
                    match self.client.unless_gone(judged).await {
                        Some(judgement) => judgement,
                        None => return Done::Ended,
                    }
                }
            };
            match judgement {
                FilterOutcome::Skipped => {}
                FilterOutcome::Allowed(decision) => told.push(filter.families(), decision),
                FilterOutcome::Denied(decision) => {
                    text.clear();
                    let status = write_denial(&decision, filter.failed_closed(), text);
                    told.push(filter.families(), decision);
                    return self
                        .answer_ourselves(request, status, (&told, &origin), (out, text))
                        .await;
                }
                FilterOutcome::BadRequest(bad) => {
                    let trouble = Trouble::Ambiguous(bad.reason());
                    gateway.note(&trouble, origin.request_id(), Some(route), None);
                    text.clear();
                    trouble.problem().write(text);
                    // Where this request ends, its sender may see otherwise.
                    self.client.is_last = true;
                    let known = (&LimitHeaders::default(), &origin);
                    return self
                        .answer_ourselves(request, trouble.status(), known, (out, text))
                        .await;
                }
            }
        }
        self.forward(request, route, (&told, &origin), (out, text))
            .await
    }
}
