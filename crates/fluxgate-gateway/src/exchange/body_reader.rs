//! The body of a response over HTTP/1.1 as frames, for hyper.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::Exchange;
use super::body_sender::BodySender;
use super::chunk_decoder::ChunkDecoder;
use super::response_head::Framing;
use crate::error::GatewayError;
use crate::hop_by_hop::is_forwarded_trailer;
use crate::upstream::{Assignment, ConnectionLimit, UpstreamStream, pool};

/// The size of a read.
const READ: usize = 64 * 1024;
/// The size of a read where the body is short or its length is unknown.
const SHORT_READ: usize = 16 * 1024;

/// Why a body ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseError {
    /// The upstream closed the connection.
    #[error("the upstream did not send the whole response")]
    Incomplete,
    /// The connection failed.
    #[error("the upstream did not send the whole response: {0}")]
    Upstream(#[from] io::Error),
    /// A chunk is malformed.
    #[error("the upstream did not send the whole response: a chunk is malformed")]
    BadChunk,
    /// A stream of HTTP/2 failed.
    #[error("the upstream did not send the whole response: {why}")]
    Stream {
        why: String,
        /// The reason that the client's own stream gets.
        #[source]
        passed_on: Option<h2::Error>,
    },
    /// Neither direction makes progress.
    #[error("the upstream did not send the whole response in time")]
    Idle,
    /// The body of the request ended early.
    #[error("{0}")]
    Request(GatewayError),
}

/// Reads the body of a response; puts the connection back into the pool at its end.
#[derive(Debug)]
pub(crate) struct Http1Reader {
    stream: Option<UpstreamStream>,
    framing: Decoder,
    trailers: Option<HeaderMap>,
    sender: Option<Box<BodySender>>,
    keeps_alive: bool,
    read: BytesMut,
    idle: Duration,
    /// When something was last read.
    last_progress: Instant,
    limit: Arc<ConnectionLimit>,
    /// Counts the request as outstanding.
    assignment: Assignment,
}

#[derive(Debug)]
enum Decoder {
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
    Ended,
}

impl Http1Reader {
    /// Reads the body of an exchange, which may go without progress for `idle`.
    pub(crate) fn new(
        exchange: Exchange,
        assignment: Assignment,
        limit: &Arc<ConnectionLimit>,
        idle: Duration,
        wants_trailers: bool,
    ) -> Self {
        let read = BytesMut::from(&exchange.buffers.input[exchange.unread.clone()]);
        exchange.buffers.release();
        let framing = match exchange.framing {
            Framing::None | Framing::Length(0) => Decoder::Ended,
            Framing::Length(length) => Decoder::Length(length),
            Framing::Chunked => Decoder::Chunked(ChunkDecoder::new(wants_trailers)),
            Framing::UntilClose => Decoder::UntilClose,
        };
        let mut reader = Self {
            stream: Some(exchange.stream),
            framing,
            trailers: None,
            sender: exchange.sender,
            keeps_alive: exchange.keeps_alive,
            read,
            idle,
            last_progress: Instant::now(),
            limit: Arc::clone(limit),
            assignment,
        };
        if matches!(reader.framing, Decoder::Ended) {
            reader.end();
        }
        reader
    }

    /// Returns whether the body has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.framing, Decoder::Ended) && self.trailers.is_none()
    }

    /// Takes the body if it is there as a whole, as short ones mostly are. The connection to the
    /// upstream is free then.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        if let Decoder::Length(left) = self.framing
            && left <= self.read.len() as u64
            && self.sender.is_none()
        {
            return self.decode().ok()??.into_data().ok();
        }
        self.has_ended().then(Bytes::new)
    }

    /// Returns whether all data has been returned. Trailers may follow.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.framing, Decoder::Ended)
    }

    /// Returns how much of the body is left.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.framing {
            Decoder::Length(left) => SizeHint::with_exact(left),
            Decoder::Ended => SizeHint::with_exact(0),
            Decoder::Chunked(_) | Decoder::UntilClose => SizeHint::default(),
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
            self.framing = Decoder::Ended;
            self.stream = None;
        }
        polled
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        loop {
            if !self.read.is_empty()
                && let Some(frame) = self.decode()?
            {
                return Poll::Ready(Some(Ok(frame)));
            }
            if matches!(self.framing, Decoder::Ended) {
                let trailers = self.trailers.take().map(Frame::trailers);
                return Poll::Ready(trailers.map(Ok));
            }
            let count = ready!(self.poll_read(cx))?;
            self.last_progress = Instant::now();
            if count == 0 {
                match self.framing {
                    Decoder::UntilClose => self.end(),
                    _ => return Poll::Ready(Some(Err(ResponseError::Incomplete))),
                }
            }
        }
    }

    /// Reads from the upstream, and sends what has arrived of the request.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, ResponseError>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(ResponseError::Incomplete));
        };
        if let Some(sender) = &mut self.sender {
            let is_sent = sender.poll(cx, stream).map_err(ResponseError::Request)?;
            self.last_progress = self.last_progress.max(sender.last_progress);
            if is_sent {
                self.sender = None;
            }
        }
        let size = match self.framing {
            Decoder::Length(left) if left > SHORT_READ as u64 => READ,
            _ => SHORT_READ,
        };
        self.read.reserve(size);
        match poll_read_buf(Pin::new(&mut *stream), cx, &mut self.read) {
            Poll::Ready(read) => Poll::Ready(Ok(read?)),
            Poll::Pending => {
                stream.deadline.set(self.last_progress + self.idle);
                ready!(stream.deadline.poll_elapsed(cx));
                Poll::Ready(Err(ResponseError::Idle))
            }
        }
    }

    /// Decodes what has been read.
    fn decode(&mut self) -> Result<Option<Frame<Bytes>>, ResponseError> {
        let data = match &mut self.framing {
            Decoder::Ended => return Ok(None),
            Decoder::UntilClose => self.read.split().freeze(),
            Decoder::Length(left) => {
                let here = self.read.len();
                let count = usize::try_from(*left).map_or(here, |left| left.min(here));
                *left -= count as u64;
                let is_last = *left == 0;
                let data = self.read.split_to(count).freeze();
                if is_last {
                    self.end();
                }
                data
            }
            Decoder::Chunked(decoder) => {
                let mut content = BytesMut::with_capacity(self.read.len());
                let read = decoder.read(&self.read, |piece| content.extend_from_slice(piece));
                let read = read.map_err(|_| ResponseError::BadChunk)?;
                let _ = self.read.split_to(read);
                if decoder.has_ended() {
                    self.trailers = parse_trailers(decoder.trailers());
                    self.end();
                }
                if content.is_empty() {
                    return Ok(None);
                }
                content.freeze()
            }
        };
        Ok(Some(Frame::data(data)))
    }

    /// Ends the body. The connection is reused unless something is wrong with it.
    fn end(&mut self) {
        self.framing = Decoder::Ended;
        let is_sent = self.sender.take().is_none();
        let is_reusable = self.keeps_alive && is_sent && self.read.is_empty();
        if let Some(stream) = self.stream.take().filter(|_| is_reusable) {
            pool::put(&self.assignment.upstream, stream, &self.limit);
        }
    }
}

/// Returns the trailers that are forwarded, if there are any.
fn parse_trailers(bytes: &[u8]) -> Option<HeaderMap> {
    let mut lines = [httparse::EMPTY_HEADER; 64];
    let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(bytes, &mut lines)
    else {
        return None;
    };
    let mut trailers = HeaderMap::new();
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let value = HeaderValue::from_bytes(line.value);
        if let (Ok(name), Ok(value)) = (name, value)
            && is_forwarded_trailer(&name)
        {
            trailers.append(name, value);
        }
    }
    (!trailers.is_empty()).then_some(trailers)
}
