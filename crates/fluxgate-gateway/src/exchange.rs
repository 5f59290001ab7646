//! A request sent over a connection to an upstream, and the response read from it.

mod body_reader;
mod body_sender;
mod chunk_decoder;
mod http2;
mod http2_head;
mod http2_reader;
mod http2_sender;
mod response_head;
mod response_reader;

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fluxgate_http::server::Buffers;
use tokio::io::AsyncWrite as _;

pub(crate) use body_reader::{Http1Reader, ResponseError};
pub(crate) use chunk_decoder::ChunkDecoder;
pub(crate) use http2::{Http2Error, Http2Exchange};
pub(crate) use http2_reader::Http2Reader;
pub(crate) use response_head::{ExpectedResponse, Framing, HeadError, ResponseHead};
pub(crate) use response_reader::BodyReader;

use crate::config::Timeouts;
use crate::error::GatewayError;
use crate::request_body::RequestBody;
use crate::upstream::UpstreamStream;
use body_sender::BodySender;

/// The largest head of a response.
const MAX_RESPONSE_HEAD: usize = 256 * 1024;
/// How many interim responses (1xx) may precede the final one.
const MAX_INTERIM: usize = 16;

/// A request, ready to be sent.
#[derive(Debug)]
pub(crate) struct OutgoingRequest<'a> {
    /// The head, and the body if it is complete.
    pub(crate) bytes: &'a [u8],
    /// A body that is sent as it arrives.
    pub(crate) body: Option<Box<RequestBody>>,
    pub(crate) wanted: ExpectedResponse,
    /// Whether it is a gRPC request over HTTP/2, which HTTP/1.1 cannot carry.
    pub(crate) needs_http2: bool,
}

/// An exchange whose response has begun.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) stream: UpstreamStream,
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// Whether the connection may be reused after the response.
    pub(crate) keeps_alive: bool,
    pub(crate) buffers: Buffers,
    /// Where the input holds what was read after the head.
    pub(crate) unread: Range<usize>,
    /// Sends the rest of the request.
    sender: Option<Box<BodySender>>,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// Nothing was sent.
    Unsent(io::Error),
    /// The request may have been read and acted upon.
    Sent(GatewayError),
}

impl Exchange {
    /// Sends a request and reads the head of the response, which is passed to `on_head`
    /// together with an empty output buffer. `request.body` stays in place until the head has
    /// been sent, so that the request can still go elsewhere.
    pub(crate) async fn begin<T>(
        stream: UpstreamStream,
        request: &mut OutgoingRequest<'_>,
        timeouts: &Timeouts,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<(Self, T), ExchangeError> {
        let mut exchange = OpenExchange {
            stream,
            buffers: Buffers::take(),
            filled: 0,
            interim: 0,
            sender: None,
        };
        exchange.stream.deadline.set_after(timeouts.request);
        let mut sent = 0;
        poll_fn(|cx| exchange.poll_send_head(cx, request.bytes, &mut sent)).await?;
        exchange.sender = request.body.take().map(BodySender::new).map(Box::new);
        let head = poll_fn(|cx| exchange.poll_head(cx, request.wanted, timeouts, on_head));
        match head.await {
            Ok((head, output)) => Ok((exchange.into_exchange(head), output)),
            Err(error) => Err(ExchangeError::Sent(error)),
        }
    }
}

/// An exchange whose response has not begun.
struct OpenExchange {
    stream: UpstreamStream,
    buffers: Buffers,
    /// How much of the input has been read.
    filled: usize,
    /// How many interim responses there were.
    interim: usize,
    sender: Option<Box<BodySender>>,
}

/// The parts of a response head that outlive the bytes.
struct ResponseSummary {
    status: u16,
    framing: Framing,
    keeps_alive: bool,
    length: usize,
}

impl OpenExchange {
    fn poll_send_head(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        sent: &mut usize,
    ) -> Poll<Result<(), ExchangeError>> {
        let stream = &mut self.stream;
        loop {
            let polled = match &bytes[*sent..] {
                [] => Pin::new(&mut *stream).poll_flush(cx).map_ok(|()| 0),
                rest => Pin::new(&mut *stream).poll_write(cx, rest),
            };
            let error = match polled {
                Poll::Ready(Ok(0)) if *sent == bytes.len() => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(0)) => io::ErrorKind::WriteZero.into(),
                Poll::Ready(Ok(count)) => {
                    *sent += count;
                    continue;
                }
                Poll::Ready(Err(error)) => error,
                Poll::Pending => {
                    ready!(stream.deadline.poll_elapsed(cx));
                    let late = ExchangeError::Sent(GatewayError::ResponseTimeout);
                    return Poll::Ready(Err(late));
                }
            };
            return Poll::Ready(Err(match *sent {
                0 => ExchangeError::Unsent(error),
                _ => ExchangeError::Sent(GatewayError::NoResponse(error)),
            }));
        }
    }

    /// Sends what has arrived of the body, and reads until the head of the response is
    /// complete. Both go on together: an upstream may respond before it has read the body.
    fn poll_head<T>(
        &mut self,
        cx: &mut Context<'_>,
        wanted: ExpectedResponse,
        timeouts: &Timeouts,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Poll<Result<(ResponseSummary, T), GatewayError>> {
        let mut timeout_error = GatewayError::ResponseTimeout;
        if let Some(sender) = &mut self.sender {
            if sender.poll(cx, &mut self.stream)? {
                self.sender = None;
                self.stream.deadline.set_after(timeouts.request);
            } else if sender.awaits_client {
                // The upstream may be waiting for the rest of the body, so the client's timeout
                // applies.
                self.stream
                    .deadline
                    .set(sender.last_progress + timeouts.idle);
                timeout_error = GatewayError::BodyTimeout;
            } else {
                self.stream
                    .deadline
                    .set(sender.last_progress + timeouts.request);
            }
        }
        loop {
            let input = &mut self.buffers.input;
            if self.filled == input.len() {
                if self.filled >= MAX_RESPONSE_HEAD {
                    return Poll::Ready(Err(GatewayError::BadResponse("the head is too large")));
                }
                input.resize(4 * self.filled, 0);
            }
            let Poll::Ready(read) = self.stream.poll_fill(cx, &mut input[self.filled..]) else {
                ready!(self.stream.deadline.poll_elapsed(cx));
                return Poll::Ready(Err(timeout_error));
            };
            match read {
                Ok(count @ 1..) => self.filled += count,
                read if self.filled == 0 => {
                    let eof = io::ErrorKind::UnexpectedEof.into();
                    return Poll::Ready(Err(GatewayError::NoResponse(read.err().unwrap_or(eof))));
                }
                _ => {
                    return Poll::Ready(Err(GatewayError::BadResponse(
                        "the connection ended within the head",
                    )));
                }
            }
            if let Some(parsed) = self.parse(wanted, on_head)? {
                return Poll::Ready(Ok(parsed));
            }
        }
    }

    /// Parses the head of the final response if it is complete. Interim responses are
    /// discarded.
    fn parse<T>(
        &mut self,
        wanted: ExpectedResponse,
        on_head: &mut impl FnMut(&ResponseHead<'_>, &mut Vec<u8>) -> T,
    ) -> Result<Option<(ResponseSummary, T)>, GatewayError> {
        let Buffers { input, output, .. } = &mut self.buffers;
        loop {
            let head = match ResponseHead::parse(&input[..self.filled], wanted) {
                Ok(head) => head,
                Err(HeadError::Incomplete) => return Ok(None),
                Err(HeadError::Invalid) => {
                    return Err(GatewayError::BadResponse("the head is malformed"));
                }
            };
            if head.status == 101 && !(wanted.upgrade && head.upgrade.is_some()) {
                return Err(GatewayError::BadResponse(
                    "a protocol switch that was not requested",
                ));
            }
            if head.status >= 200 || head.status == 101 {
                let summary = ResponseSummary {
                    status: head.status,
                    framing: head.framing,
                    keeps_alive: head.keeps_alive,
                    length: head.length,
                };
                output.clear();
                return Ok(Some((summary, on_head(&head, output))));
            }
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(GatewayError::BadResponse("too many interim responses"));
            }
            let length = head.length;
            drop(head);
            input.copy_within(length..self.filled, 0);
            self.filled -= length;
        }
    }

    fn into_exchange(self, head: ResponseSummary) -> Exchange {
        Exchange {
            stream: self.stream,
            status: head.status,
            framing: head.framing,
            keeps_alive: head.keeps_alive,
            buffers: self.buffers,
            unread: head.length..self.filled,
            sender: self.sender,
        }
    }
}
