//! Watches the frames of a server for what the HTTP/2 library does not report: which streams
//! `GOAWAY` leaves out, and whether anything arrives at all.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::http2_frames::FrameReader;
use crate::upstream::server::UpstreamStream;

/// The type of `GOAWAY` frames.
const GOAWAY: u8 = 7;
/// No stream has this number.
const NO_GOAWAY: u32 = u32::MAX;

/// What was seen of the frames of a connection.
#[derive(Debug)]
pub(super) struct FrameWatch {
    /// The last stream that the server processes, by the latest `GOAWAY`.
    last_stream: AtomicU32,
    has_ended: AtomicBool,
    start: Instant,
    /// When something last arrived, in milliseconds after the start.
    last_read: AtomicU64,
}

impl FrameWatch {
    pub(super) fn new() -> Self {
        Self {
            last_stream: AtomicU32::new(NO_GOAWAY),
            has_ended: AtomicBool::new(false),
            start: Instant::now(),
            last_read: AtomicU64::new(0),
        }
    }

    /// Returns whether the connection takes new streams.
    pub(super) fn is_open(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
            && self.last_stream.load(Ordering::Relaxed) == NO_GOAWAY
    }

    /// Returns whether a `GOAWAY` says that the server has not processed this stream, and never will.
    pub(super) fn leaves_out(&self, stream: u32) -> bool {
        stream > self.last_stream.load(Ordering::Relaxed)
    }

    /// Returns whether nothing has arrived for so long.
    pub(super) fn is_silent_for(&self, span: Duration) -> bool {
        let last = Duration::from_millis(self.last_read.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last) >= span
    }

    /// Records the end of the connection.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn record_read(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_read.store(millis, Ordering::Relaxed);
    }
}

/// A connection whose frames are watched.
#[derive(Debug)]
pub(super) struct WatchedStream {
    stream: UpstreamStream,
    parser: GoawayParser,
    watch: Arc<FrameWatch>,
}

impl WatchedStream {
    pub(super) fn new(stream: UpstreamStream, watch: Arc<FrameWatch>) -> Self {
        Self {
            stream,
            parser: GoawayParser::default(),
            watch,
        }
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            this.watch.record_read();
            let watch = &this.watch;
            this.parser.read(read, |last_stream| {
                watch.last_stream.store(last_stream, Ordering::Relaxed);
            });
        }
        polled
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Finds `GOAWAY` frames, however the bytes are split.
#[derive(Debug, Default)]
struct GoawayParser {
    frames: FrameReader,
    /// The start of the payload: the last stream.
    stream: [u8; 4],
    stream_seen: usize,
}

impl GoawayParser {
    /// Reads the next bytes. Passes the last stream of each `GOAWAY` to `found`.
    fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(u32)) {
        while let Some(piece) = self.frames.next(&mut bytes) {
            if piece.is_first {
                self.stream_seen = 0;
            }
            if piece.kind != GOAWAY || self.stream_seen == 4 {
                continue;
            }
            let count = piece.payload.len().min(4 - self.stream_seen);
            let end = self.stream_seen + count;
            self.stream[self.stream_seen..end].copy_from_slice(&piece.payload[..count]);
            self.stream_seen = end;
            if end == 4 {
                // The highest bit is reserved.
                found(u32::from_be_bytes(self.stream) & 0x7fff_ffff);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn goaway_is_found_however_the_bytes_are_split() {
        let bytes = [
            frame(4, &[0, 3, 0, 0, 0, 7]),
            frame(4, &[]),
            // The payload of another frame that looks like the one that is searched for.
            frame(0, &frame(GOAWAY, &[0; 8])),
            frame(GOAWAY, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
            frame(6, &[0; 8]),
            frame(GOAWAY, &[0, 0, 1, 5, 0, 0, 0, 0, b'b', b'y', b'e']),
        ]
        .concat();
        for size in 1..=bytes.len() {
            let (mut parser, mut found) = (GoawayParser::default(), Vec::new());
            for piece in bytes.chunks(size) {
                parser.read(piece, |stream| found.push(stream));
            }
            assert_eq!(found, [0x7fff_ffff, 0x105], "{size}");
        }
    }
}
