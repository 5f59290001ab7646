//! A client connection that hyper serves, with timeouts.
//!
//! hyper has one timeout for everything between two requests. There are three here: for the
//! rest of a head once it has begun, for the next request to begin, and for the client to
//! accept what is sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::connection_state::ConnectionState;
use super::deadline::Deadline;
use super::http2_frames::FrameTracker;
use crate::config::Timeouts;

/// An HTTP/1.1 connection that has been idle for this long is parked: it gives up the memory
/// that its requests took.
const PARK_AFTER: Duration = Duration::from_secs(1);

/// A client connection with timeouts.
#[derive(Debug)]
pub(crate) struct TimeoutStream<S> {
    stream: S,
    state: Arc<ConnectionState>,
    timeouts: Timeouts,
    is_http2: bool,
    /// The frames of an HTTP/2 connection.
    frames: FrameTracker,
    /// Runs while a frame other than `DATA`, or a head, is incomplete.
    incomplete: Deadline,
    /// The number of requests at the last read.
    seen: u64,
    /// Whether a head has begun.
    in_head: bool,
    /// Whether the client has been sent `GOAWAY`.
    goaway_sent: bool,
    /// Whether the connection has been idle for long enough to be parked.
    park_delay_passed: bool,
    reading: Deadline,
    writing: Deadline,
}

fn park_after(timeouts: &Timeouts) -> Duration {
    PARK_AFTER.min(timeouts.idle / 2)
}

/// Returns how long a parked connection may stay idle.
pub(crate) fn idle_after_parking(timeouts: &Timeouts) -> Duration {
    timeouts.idle - park_after(timeouts)
}

impl<S> TimeoutStream<S> {
    /// Adds timeouts to a connection whose first head must be complete by `first_head_by`.
    pub(crate) fn new(
        stream: S,
        state: Arc<ConnectionState>,
        timeouts: Timeouts,
        is_http2: bool,
        first_head_by: Instant,
    ) -> Self {
        let mut reading = Deadline::default();
        if !is_http2 {
            reading.set(first_head_by);
        }
        Self {
            stream,
            state,
            timeouts,
            is_http2,
            frames: FrameTracker::new(),
            incomplete: Deadline::default(),
            seen: 0,
            in_head: true,
            goaway_sent: false,
            park_delay_passed: false,
            reading,
            writing: Deadline::default(),
        }
    }

    /// Returns the connection.
    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    /// Clears the read deadline if a request has begun since the last read or is in flight.
    fn note_requests(&mut self) {
        let begun = self.state.begun();
        if begun != self.seen || self.state.is_busy() {
            self.seen = begun;
            self.in_head = false;
            self.park_delay_passed = false;
            self.reading.clear();
        }
    }

    /// Ready once the client has sent nothing for too long.
    fn poll_read_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Nothing else can arrive before the rest of the frame, whatever is in flight.
        if self.is_http2 && self.frames.is_incomplete() {
            let timeout = self.timeouts.headers;
            if self.incomplete.poll_after(cx, timeout).is_ready() {
                return Poll::Ready(());
            }
        }
        if self.state.is_busy() {
            *self.state.reader_waker() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.is_http2 && !self.goaway_sent {
            ready!(self.reading.poll_after(cx, self.timeouts.idle));
            // A request may be on its way, so `GOAWAY` is sent first.
            self.goaway_sent = true;
            self.reading.clear();
            self.state.expired.notify_one();
        }
        let timeout = if self.in_head || self.goaway_sent {
            self.timeouts.headers
        } else {
            idle_after_parking(&self.timeouts)
        };
        if !self.is_http2 && !self.in_head && !self.park_delay_passed {
            ready!(self.reading.poll_after(cx, park_after(&self.timeouts)));
            self.park_delay_passed = true;
            self.reading.clear();
            // The rest of a body that was not read to its end may still arrive.
            if self.state.is_answered() && !self.state.has_unread() {
                self.state.parked.notify_one();
            }
        }
        self.reading.poll_after(cx, timeout)
    }

    /// Returns the result of writing, or an error if the client accepts nothing.
    fn with_write_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(written) => {
                self.writing.clear();
                Poll::Ready(written)
            }
            Poll::Pending => {
                ready!(self.writing.poll_after(cx, self.timeouts.idle));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.note_requests();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                if this.is_http2 && this.frames.read(&buffer.filled()[before..]) {
                    this.incomplete.clear();
                }
                if !this.in_head && !this.is_http2 && !this.state.is_busy() {
                    this.in_head = true;
                    this.reading.clear();
                }
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(this.poll_read_timeout(cx));
                // As if the client had closed the connection.
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.with_write_timeout(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, pieces);
        this.with_write_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if flushed.is_ready() {
            this.state.record_flush();
        }
        this.with_write_timeout(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.with_write_timeout(cx, shut)
    }
}
