//! The body of a response over HTTP/2 as frames.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_http::server::{Buffers, is_token};
use h2::{Reason, RecvStream};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::body_reader::ResponseError;
use super::http2::Http2Exchange;
use super::http2_sender::Http2Sender;
use super::response_head::Framing;
use crate::hop_by_hop::is_forwarded_trailer;
use crate::timeouts::Deadline;
use crate::upstream::Assignment;
use crate::upstream::http2::StreamSlot;

/// Reads the body of a response, and sends the rest of the request. The server may send more only
/// as frames are taken, so a client that reads slowly slows the server.
#[derive(Debug)]
pub(crate) struct Http2Reader {
    /// `None` once the body has ended. Dropping it before that cancels the request.
    stream: Option<OpenStream>,
    /// How much is left, if that is known.
    left: Option<u64>,
    /// Whether all data has been returned.
    is_read: bool,
    wants_trailers: bool,
    idle: Duration,
    /// When something was last read or sent.
    last_progress: Instant,
    /// Counts the request as outstanding.
    assignment: Assignment,
}

#[derive(Debug)]
struct OpenStream {
    receiving: RecvStream,
    sender: Option<Box<Http2Sender>>,
    deadline: Deadline,
    slot: StreamSlot,
}

impl Http2Reader {
    /// Reads the body of an exchange, which may go without progress for `idle`. Also returns the
    /// buffers of the exchange.
    pub(crate) fn new(
        exchange: Http2Exchange,
        assignment: Assignment,
        idle: Duration,
        wants_trailers: bool,
    ) -> (Self, Buffers) {
        let has_body = exchange.framing != Framing::None && !exchange.receiving.is_end_stream();
        let reader = Self {
            stream: has_body.then(|| OpenStream {
                receiving: exchange.receiving,
                sender: exchange.sender,
                deadline: exchange.deadline,
                slot: exchange.slot,
            }),
            left: match exchange.framing {
                Framing::Length(length) => Some(length),
                _ => None,
            },
            is_read: !has_body,
            wants_trailers,
            idle,
            last_progress: Instant::now(),
            assignment,
        };
        (reader, exchange.buffers)
    }

    /// Returns whether the body has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.stream.is_none()
    }

    /// Returns whether all data has been returned. Trailers may follow.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns how much of the body is left.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.is_read => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }

    /// Returns the next frame.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        let polled = self.poll(cx);
        if let Poll::Ready(Some(Err(error))) = &polled {
            let upstream = &self.assignment.upstream.target;
            tracing::debug!(%upstream, %error, "a response ended early");
            self.end();
        }
        polled
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        if let Some(sender) = &mut stream.sender {
            let is_sent = sender.poll(cx).map_err(ResponseError::Request)?;
            self.last_progress = self.last_progress.max(sender.last_progress);
            if is_sent {
                stream.sender = None;
            }
        }
        let receiving = &mut stream.receiving;
        while !self.is_read {
            match receiving.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    self.last_progress = Instant::now();
                    // It fails only if the stream has ended.
                    let _ = receiving.flow_control().release_capacity(data.len());
                    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    self.left = self.left.map(|left| left.saturating_sub(length));
                    let (is_last, is_empty) = (receiving.is_end_stream(), data.is_empty());
                    let frame = (!is_empty).then(|| Ok(Frame::data(data)));
                    if is_last {
                        self.end();
                        return Poll::Ready(frame);
                    }
                    if frame.is_some() {
                        return Poll::Ready(frame);
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(failed(&error)))),
                Poll::Ready(None) => self.is_read = true,
                Poll::Pending => return self.poll_idle(cx),
            }
        }
        match receiving.poll_trailers(cx) {
            Poll::Ready(Ok(trailers)) => {
                self.end();
                let trailers = trailers.filter(|_| self.wants_trailers).map(forwarded);
                let trailers = trailers.filter(|trailers| !trailers.is_empty());
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(failed(&error)))),
            Poll::Pending => self.poll_idle(cx),
        }
    }

    /// Ready once neither direction has made progress for too long.
    fn poll_idle(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        stream.deadline.set(self.last_progress + self.idle);
        ready!(stream.deadline.poll_elapsed(cx));
        stream.slot.retire_if_silent(self.idle);
        Poll::Ready(Some(Err(ResponseError::Idle)))
    }

    /// Ends the body. If the request has not been sent to its end, that is cancelled.
    fn end(&mut self) {
        self.stream = None;
        self.is_read = true;
    }
}

/// Returns the trailers that are forwarded.
fn forwarded(trailers: HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(trailers.len());
    for (name, value) in &trailers {
        // The HTTP/2 library accepts names that HTTP/1.1 cannot carry.
        if name.as_str().bytes().all(is_token) && is_forwarded_trailer(name) {
            kept.append(name, value.clone());
        }
    }
    kept
}

/// Returns why a body ended early. The client learns of a call that the server has cancelled; no
/// other reason of the server concerns the client's own connection.
fn failed(error: &h2::Error) -> ResponseError {
    let is_cancelled =
        error.is_remote() && error.is_reset() && error.reason() == Some(Reason::CANCEL);
    ResponseError::Stream {
        why: error.to_string(),
        passed_on: is_cancelled.then(|| Reason::CANCEL.into()),
    }
}
