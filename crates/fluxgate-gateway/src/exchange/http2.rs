//! A request sent over HTTP/2, and the response read from it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fluxgate_http::server::Buffers;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::Response;
use http::uri::Scheme;

use super::http2_head::read_head;
use super::http2_sender::Http2Sender;
use super::response_head::{ExpectedResponse, Framing, ResponseHead};
use super::{MAX_INTERIM, OutgoingRequest};
use crate::config::Timeouts;
use crate::error::GatewayError;
use crate::timeouts::Deadline;
use crate::upstream::http2::StreamSlot;

/// An exchange over HTTP/2 whose response has begun.
#[derive(Debug)]
pub(crate) struct Http2Exchange {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    pub(crate) buffers: Buffers,
    pub(super) receiving: RecvStream,
    /// Sends the rest of the request.
    pub(super) sender: Option<Box<Http2Sender>>,
    pub(super) deadline: Deadline,
    pub(super) slot: StreamSlot,
}

/// Why there is no response over HTTP/2.
#[derive(Debug)]
pub(crate) enum Http2Error {
    /// The server has not processed the request, and the request is as it was before.
    Refused(GatewayError),
    /// The server has not processed the request, but some of it is gone.
    RefusedInPart(GatewayError),
    /// The request may have been read and acted upon.
    Sent {
        error: GatewayError,
        /// Whether the upstream is to blame.
        is_fault: bool,
    },
    /// The request cannot be sent over HTTP/2.
    Impossible(GatewayError),
}

impl Http2Exchange {
    /// Sends a request and reads the head of the response, which is passed to `on_head`
    /// together with an empty output buffer.
    pub(crate) async fn begin<T>(
        slot: StreamSlot,
        scheme: Scheme,
        request: &mut OutgoingRequest<'_>,
        timeouts: &Timeouts,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<(Self, T), Http2Error> {
        let Some((head, content)) = read_head(request.bytes, scheme) else {
            let why = "the request has no form in HTTP/2";
            return Err(Http2Error::Impossible(GatewayError::Ambiguous(why)));
        };
        let is_whole = content.is_empty() && request.body.is_none();
        let (response, stream) = match slot.send(head, is_whole) {
            Ok(sent) => sent,
            Err(error) => return Err(Http2Error::Refused(refused(error))),
        };
        let mut sending = SentRequest {
            response,
            sender: (!is_whole).then(|| {
                let body = request.body.take();
                Box::new(Http2Sender::new(stream, content, body))
            }),
            is_sent: is_whole,
            interim: 0,
            deadline: Deadline::default(),
            slot,
        };
        sending.deadline.set_after(timeouts.request);
        let response = poll_fn(|cx| sending.poll_response(cx, timeouts)).await;
        match response {
            Ok(response) => sending.begun(response, request.wanted, on_head),
            Err(Failure::Stream(error)) => Err(sending.failed(error, request)),
            Err(Failure::Gateway(error)) => {
                let is_fault = error.status().is_server_error();
                Err(Http2Error::Sent { error, is_fault })
            }
        }
    }
}

/// A request whose response has not begun.
struct SentRequest {
    response: ResponseFuture,
    sender: Option<Box<Http2Sender>>,
    /// Whether all of the request has been sent.
    is_sent: bool,
    /// How many interim responses there were.
    interim: usize,
    deadline: Deadline,
    slot: StreamSlot,
}

enum Failure {
    Stream(h2::Error),
    Gateway(GatewayError),
}

impl SentRequest {
    /// Sends what has arrived of the body, and reads until the final response begins.
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        timeouts: &Timeouts,
    ) -> Poll<Result<Response<RecvStream>, Failure>> {
        let mut timeout_error = GatewayError::ResponseTimeout;
        if let Some(sender) = self.sender.as_mut().filter(|_| !self.is_sent) {
            if sender.poll(cx).map_err(Failure::Gateway)? {
                self.is_sent = true;
                self.deadline.set_after(timeouts.request);
            } else if sender.awaits_client {
                // The upstream may be waiting for the rest of the body, so the client's timeout
                // applies.
                self.deadline.set(sender.last_progress + timeouts.idle);
                timeout_error = GatewayError::BodyTimeout;
            } else {
                self.deadline.set(sender.last_progress + timeouts.request);
            }
        }
        let polled = loop {
            match self.response.poll_informational(cx) {
                Poll::Ready(Some(Ok(_))) => {
                    self.interim += 1;
                    if self.interim > MAX_INTERIM {
                        let error = GatewayError::BadResponse("too many interim responses");
                        return Poll::Ready(Err(Failure::Gateway(error)));
                    }
                }
                Poll::Ready(Some(Err(error))) => break Poll::Ready(Err(error)),
                Poll::Ready(None) => break Pin::new(&mut self.response).poll(cx),
                Poll::Pending => break Poll::Pending,
            }
        };
        if let Poll::Ready(response) = polled {
            return Poll::Ready(response.map_err(Failure::Stream));
        }
        ready!(self.deadline.poll_elapsed(cx));
        if matches!(timeout_error, GatewayError::ResponseTimeout) {
            self.slot.retire_if_silent(timeouts.request);
        }
        Poll::Ready(Err(Failure::Gateway(timeout_error)))
    }

    fn begun<T>(
        self,
        response: Response<RecvStream>,
        wanted: ExpectedResponse,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<(Http2Exchange, T), Http2Error> {
        let (parts, receiving) = response.into_parts();
        let head = ResponseHead::of_http2(&parts, wanted);
        let head = head.map_err(|_| Http2Error::Sent {
            error: GatewayError::BadResponse("the head is ambiguous"),
            is_fault: true,
        })?;
        let mut buffers = Buffers::take();
        buffers.output.clear();
        let output = on_head(&head, &mut buffers.output);
        let mut sender = self.sender.filter(|_| !self.is_sent);
        if let Some(sender) = &mut sender {
            sender.forget();
        }
        let exchange = Http2Exchange {
            status: head.status,
            framing: head.framing,
            buffers,
            receiving,
            sender,
            deadline: self.deadline,
            slot: self.slot,
        };
        Ok((exchange, output))
    }

    /// Returns what an error of the stream means. If the server has not processed the request,
    /// its body is restored.
    fn failed(self, error: h2::Error, request: &mut OutgoingRequest<'_>) -> Http2Error {
        let stream = self.response.stream_id().as_u32();
        // RFC 9113, section 8.7: these two say that the request was not processed.
        let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        let is_left_out = error.is_go_away() && self.slot.is_left_out(stream);
        if error.is_remote() && (is_refused || is_left_out) {
            let error = refused(error);
            return match self.sender.map(|sender| sender.into_body()) {
                None => Http2Error::Refused(error),
                Some(Some(body)) => {
                    request.body = body;
                    Http2Error::Refused(error)
                }
                Some(None) => Http2Error::RefusedInPart(error),
            };
        }
        // A server may close an idle connection at any time, and may end a call whose deadline
        // has passed.
        let is_fault = if error.is_io() {
            !self.slot.is_reused
        } else {
            !matches!(error.reason(), Some(Reason::CANCEL | Reason::NO_ERROR))
        };
        let error = if error.is_library() {
            tracing::debug!(%error, "an upstream violates HTTP/2");
            GatewayError::BadResponse("it violates HTTP/2, or its head is too large")
        } else {
            GatewayError::NoResponse(to_io(error))
        };
        Http2Error::Sent { error, is_fault }
    }
}

fn refused(error: h2::Error) -> GatewayError {
    GatewayError::Refused(to_io(error))
}

fn to_io(error: h2::Error) -> io::Error {
    io::Error::other(error.to_string())
}
