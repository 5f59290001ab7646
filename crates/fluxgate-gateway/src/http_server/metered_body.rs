//! The answer to a call to a language model, counted as it passes.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use fluxgate_llm::MeterOutput;
use http_body::{Frame, SizeHint};

use crate::exchange::{BodyReader, ResponseError};
use crate::llm::MeteredCall;

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
            removes_events: call.removes_events(),
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
