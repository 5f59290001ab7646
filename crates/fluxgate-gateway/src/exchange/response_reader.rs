//! The body of a response as frames, over either protocol.

use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::body_reader::{Http1Reader, ResponseError};
use super::http2_reader::Http2Reader;

/// Reads the body of a response.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every value is a response over HTTP/1.1"
)]
pub(crate) enum BodyReader {
    Http1(Http1Reader),
    Http2(Http2Reader),
}

impl BodyReader {
    /// Returns whether the body has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Http1(reader) => reader.has_ended(),
            Self::Http2(reader) => reader.has_ended(),
        }
    }

    /// Takes the body if it is there as a whole.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        match self {
            Self::Http1(reader) => reader.take_whole(),
            Self::Http2(reader) => reader.has_ended().then(Bytes::new),
        }
    }

    /// Returns whether all data has been returned. Trailers may follow.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Self::Http1(reader) => reader.is_read(),
            Self::Http2(reader) => reader.is_read(),
        }
    }

    /// Returns how much of the body is left.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(reader) => reader.size_hint(),
            Self::Http2(reader) => reader.size_hint(),
        }
    }

    /// Returns the next frame.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match self {
            Self::Http1(reader) => reader.poll_frame(cx),
            Self::Http2(reader) => reader.poll_frame(cx),
        }
    }
}
