//! The body of a response on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use fluxgate_http::HeldUntilDropped;
use fluxgate_llm::MeterOutput;
use http_body::{Body, Frame, SizeHint};

use crate::exchange::{BodyReader, ResponseError};
use crate::llm::MeteredCall;
use crate::request_record::OpenRecord;
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
    /// Counts the request when the body has ended.
    record: Option<Box<OpenRecord>>,
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

    pub(super) fn upstream(mut reader: BodyReader) -> Self {
        match reader.take_whole() {
            Some(bytes) => Self::whole(bytes),
            None => Self::new(BodyKind::Upstream(Box::new(reader))),
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
            record: None,
        }
    }

    /// Counts the request when the body has ended.
    pub(super) fn recorded(mut self, record: Box<OpenRecord>) -> Self {
        self.record = Some(record);
        self
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
            if let Some(record) = &mut this.record {
                match &frame {
                    Some(Ok(frame)) => {
                        let length = frame.data_ref().map_or(0, Bytes::len);
                        record.record.bytes_out += length as u64;
                    }
                    Some(Err(error)) => record.record.failed(|| error.to_string()),
                    None => {}
                }
            }
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

/// A body whose tokens are counted. The call is settled with the last frame, or when the body
/// is dropped.
#[derive(Debug)]
pub(super) struct MeteredBody {
    reader: BodyReader,
    /// `None` once it is settled.
    call: Option<Box<MeteredCall>>,
    removes_events: bool,
    /// Trailers or the error that follow the last data.
    last: Option<Result<Frame<Bytes>, ResponseError>>,
}

impl MeteredBody {
    pub(super) fn new(reader: BodyReader, call: Box<MeteredCall>) -> Self {
        let mut body = Self {
            removes_events: call.removes_events,
            reader,
            call: Some(call),
            last: None,
        };
        if body.reader.has_ended() {
            body.finish();
        }
        body
    }

    pub(super) fn has_ended(&self) -> bool {
        self.reader.has_ended() && self.call.is_none() && self.last.is_none()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        if self.removes_events {
            SizeHint::default()
        } else {
            self.reader.size_hint()
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        loop {
            if let Some(last) = self.last.take() {
                return Poll::Ready(Some(last));
            }
            let data = match ready!(self.reader.poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.pass(data),
                    Err(trailers) => {
                        self.last = Some(Ok(trailers));
                        self.finish().into()
                    }
                },
                Some(Err(error)) => {
                    self.last = Some(Err(error));
                    let call = self.call.take();
                    call.map_or_else(Vec::new, |mut call| call.cut_off()).into()
                }
                None => match self.finish() {
                    rest if rest.is_empty() => return Poll::Ready(None),
                    rest => rest.into(),
                },
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    /// Counts a part of the answer; returns what the client gets.
    fn pass(&mut self, data: Bytes) -> Bytes {
        let Some(call) = &mut self.call else {
            return data;
        };
        let passed = match call.feed(&data) {
            MeterOutput::Unchanged => data,
            MeterOutput::Instead(bytes) => bytes.into(),
        };
        if !self.reader.is_read() {
            return passed;
        }
        let rest = self.finish();
        if rest.is_empty() {
            return passed;
        }
        let mut both = BytesMut::from(passed);
        both.extend_from_slice(&rest);
        both.freeze()
    }

    /// Settles the call. Returns the rest to send.
    fn finish(&mut self) -> Vec<u8> {
        let call = self.call.take();
        call.map_or_else(Vec::new, |mut call| call.finish())
    }
}
