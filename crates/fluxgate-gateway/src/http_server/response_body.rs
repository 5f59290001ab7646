//! The body of a response on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fluxgate_http::HeldUntilDropped;
use http_body::{Body, Frame, SizeHint};

use super::metered_body::MeteredBody;
use crate::exchange::{BodyReader, ResponseError};
use crate::llm::MeteredCall;
use crate::timeouts::{InFlight, Progress};

/// The largest frame on HTTP/2: small enough to see how much the client accepts.
const MAX_FRAME: usize = 16 * 1024;

/// A body of the gateway itself, or of an upstream.
#[derive(Debug)]
pub(super) struct ResponseBody {
    kind: BodyKind,
    /// On HTTP/2: the progress of the response, and the rest of the frame that is being
    /// split.
    split: Option<(Arc<Progress>, Bytes)>,
    /// Until the body has ended, the request is in flight.
    _in_flight: Option<InFlight>,
    /// The slots of the request, which are released when the body has ended.
    _held: HeldUntilDropped,
}

#[derive(Debug)]
enum BodyKind {
    Whole(Option<Bytes>),
    Upstream(Box<BodyReader>),
    Metered(Box<MeteredBody>),
}

impl ResponseBody {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(BodyKind::Whole(Some(bytes.into())))
    }

    pub(super) fn upstream(reader: BodyReader) -> Self {
        if reader.has_ended() {
            Self::whole(Bytes::new())
        } else {
            Self::new(BodyKind::Upstream(Box::new(reader)))
        }
    }

    /// The answer to a call, which is counted as it passes.
    pub(super) fn metered(reader: BodyReader, call: Box<MeteredCall>) -> Self {
        let body = MeteredBody::new(reader, call);
        Self::new(BodyKind::Metered(Box::new(body)))
    }

    fn new(kind: BodyKind) -> Self {
        Self {
            kind,
            split: None,
            _in_flight: None,
            _held: HeldUntilDropped::default(),
        }
    }

    /// Splits the body into frames of HTTP/2, and records its progress.
    pub(super) fn split(mut self, progress: Arc<Progress>) -> Self {
        self.split = Some((progress, Bytes::new()));
        self
    }

    /// Counts the request as in flight until the body has ended.
    pub(super) fn holding(mut self, in_flight: InFlight) -> Self {
        self._in_flight = Some(in_flight);
        self
    }

    /// Keeps the slots of the request until the body has ended.
    pub(super) fn keeping(mut self, held: HeldUntilDropped) -> Self {
        self._held = held;
        self
    }

    fn poll_kind(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match &mut self.kind {
            BodyKind::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            BodyKind::Upstream(reader) => reader.poll_frame(cx),
            BodyKind::Metered(body) => body.poll_frame(cx),
        }
    }

    /// Returns how much was read and not yet polled.
    fn rest(&self) -> u64 {
        let rest = self.split.as_ref().map_or(0, |(_, rest)| rest.len());
        u64::try_from(rest).unwrap_or(u64::MAX)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        let this = self.get_mut();
        if this.rest() == 0 {
            let frame = ready!(this.poll_kind(cx));
            let Some((progress, rest)) = &mut this.split else {
                return Poll::Ready(frame);
            };
            progress.record();
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => *rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        Poll::Ready(this.split.as_mut().map(|(progress, rest)| {
            progress.record();
            Ok(Frame::data(rest.split_to(rest.len().min(MAX_FRAME))))
        }))
    }

    fn is_end_stream(&self) -> bool {
        let is_over = match &self.kind {
            BodyKind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            BodyKind::Upstream(reader) => reader.has_ended(),
            BodyKind::Metered(body) => body.has_ended(),
        };
        is_over && self.rest() == 0
    }

    fn size_hint(&self) -> SizeHint {
        let hint = match &self.kind {
            BodyKind::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            BodyKind::Upstream(reader) => reader.size_hint(),
            BodyKind::Metered(body) => body.size_hint(),
        };
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower().saturating_add(self.rest()));
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper.saturating_add(self.rest()));
        }
        whole
    }
}
