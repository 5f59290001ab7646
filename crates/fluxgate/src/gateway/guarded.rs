//! A client's connection that does not wait for ever.
//!
//! The HTTP library knows one bound for everything between two requests. Here are
//! three: for the rest of a head once it has begun, for the next request to
//! begin, and for the client to take what is sent to it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::Gateway;
use super::frames::Frames;
use super::pulse::Pulse;
use super::trouble::Trouble;
use crate::config::Timeouts;
use crate::http::{Listener, ReplacementResponse, closing_response, library_error, request_id};

/// After so long without a request, a connection is at rest.
const REST: Duration = Duration::from_secs(1);
/// How long is read on for once there is nothing more to say.
const LINGER: Duration = Duration::from_secs(2);
/// How much at once.
const SCRATCH: usize = 16 * 1024;

/// A connection with its bounds.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    pulse: Arc<Pulse>,
    timeouts: Timeouts,
    /// Where other things than heads are sent between requests.
    is_http2: bool,
    /// What has come over HTTP/2.
    frames: Frames,
    /// Runs while a frame other than of a body, or a head, is unfinished.
    unfinished: Timer,
    /// How many requests there had been when it was last looked.
    seen: u64,
    /// Whether a head has begun.
    in_head: bool,
    /// Whether the client is being told that it is idle for too long.
    is_tired: bool,
    /// Whether it is at rest.
    is_at_rest: bool,
    reading: Timer,
    writing: Timer,
    /// How many requests there had been when all answers were last written.
    written: u64,
    /// What is written in place of an answer of the library's own.
    instead: Option<ReplacementResponse>,
    /// Whether our side has been closed.
    is_shut: bool,
    gateway: Arc<Gateway>,
}

/// A timer that is made when it is first needed.
#[derive(Debug, Default)]
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    deadline: Option<Instant>,
}

impl Timer {
    fn stop(&mut self) {
        self.deadline = None;
    }

    /// Ready once the time is over. It starts with the first call, unless it was
    /// started before.
    fn poll(&mut self, context: &mut Context<'_>, within: Duration) -> Poll<()> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + within);
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(context)
    }
}

/// How long a connection is idle before it is at rest.
fn rest(timeouts: &Timeouts) -> Duration {
    REST.min(timeouts.idle / 2)
}

/// How long a connection that is at rest may go on being idle.
pub(super) fn idle_after_rest(timeouts: &Timeouts) -> Duration {
    timeouts.idle - rest(timeouts)
}

impl<S> Guarded<S> {
    /// Whoever connects has something to say: the first head must be there by then.
    pub(super) fn new(
        stream: S,
        pulse: Arc<Pulse>,
        gateway: Arc<Gateway>,
        is_http2: bool,
        first_head_by: Instant,
    ) -> Self {
        Self {
            stream,
            pulse,
            timeouts: gateway.timeouts,
            gateway,
            is_http2,
            frames: Frames::new(),
            unfinished: Timer::default(),
            written: 0,
            instead: None,
            is_shut: false,
            seen: 0,
            in_head: true,
            is_tired: false,
            is_at_rest: false,
            reading: Timer {
                sleep: None,
                deadline: (!is_http2).then_some(first_head_by),
            },
            writing: Timer::default(),
        }
    }

    /// The connection itself.
    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// Starts anew if there was a request since.
    fn look(&mut self) {
        let begun = self.pulse.begun();
        if begun != self.seen || self.pulse.is_busy() {
            self.seen = begun;
            self.in_head = false;
            self.is_at_rest = false;
            self.reading.stop();
        }
    }

    fn poll_too_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // However many requests are being answered: nothing else can come before
        // the rest of it.
        if self.is_http2 && self.frames.is_unfinished() {
            let within = self.timeouts.headers;
            if self.unfinished.poll(context, within).is_ready() {
                return Poll::Ready(());
            }
        }
        if self.pulse.is_busy() {
            *self.pulse.reader() = Some(context.waker().clone());
            return Poll::Pending;
        }
        if self.is_http2 && !self.is_tired {
            ready!(self.reading.poll(context, self.timeouts.idle));
            // A request may be on its way: the client is told before it is left.
            self.is_tired = true;
            self.reading.stop();
            self.pulse.tire();
        }
        let within = match self.in_head || self.is_tired {
            true => self.timeouts.headers,
            false => idle_after_rest(&self.timeouts),
        };
        // A body that is not read to its end may still be coming.
        let is_over = self.written == self.seen && !self.pulse.has_unread();
        if !self.is_http2 && !self.in_head && !self.is_at_rest {
            ready!(self.reading.poll(context, rest(&self.timeouts)));
            self.is_at_rest = true;
            self.reading.stop();
            if is_over {
                self.pulse.rest();
            }
        }
        self.reading.poll(context, within)
    }

    /// What became of writing. A client that takes nothing is given up.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(written) => {
                self.writing.stop();
                Poll::Ready(written)
            }
            Poll::Pending => {
                ready!(self.writing.poll(context, self.timeouts.idle));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.look();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                if this.is_http2 && this.frames.read(&buffer.filled()[before..]) {
                    this.unfinished.stop();
                }
                if !this.in_head && !this.is_http2 && !this.pulse.is_busy() {
                    this.in_head = true;
                    this.reading.stop();
                }
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(this.poll_too_late(context));
                // As if the client had gone.
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Guarded<S> {
    /// Writes something else, if this is what the library says by itself.
    fn poll_instead(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.instead.is_none() {
            let is_own = !self.is_http2 && self.written == self.pulse.begun();
            let status = library_error(bytes).filter(|_| is_own)?;
            self.instead = Some(ReplacementResponse::new(
                self.gateway.refusal(status),
                bytes.len(),
            ));
            // Whatever else the client sends is not read.
            self.pulse.leave_unread();
        }
        let written = self.instead.as_mut()?.poll_write(&mut self.stream, context);
        if written.is_ready() {
            self.instead = None;
        }
        Some(written)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// Reads on for a moment, in vain: were the connection closed over unread
    /// bytes, the client might never see its answer.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; SCRATCH];
        loop {
            if self.writing.poll(context, LINGER).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match this.poll_instead(context, bytes) {
            Some(written) => written,
            None => Pin::new(&mut this.stream).poll_write(context, bytes),
        };
        this.written(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let instead = match pieces {
            [only] => this.poll_instead(context, only),
            _ => None,
        };
        let written = match instead {
            Some(written) => written,
            None => Pin::new(&mut this.stream).poll_write_vectored(context, pieces),
        };
        this.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if flushed.is_ready() && !this.pulse.is_busy() {
            this.written = this.pulse.begun();
        }
        this.written(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut {
            let shut = Pin::new(&mut this.stream).poll_shutdown(context);
            ready!(this.written(context, shut))?;
            this.is_shut = true;
        }
        if this.pulse.has_unread() {
            ready!(this.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}

impl Gateway {
    /// Returns the whole response to a head that hyper cannot read, which closes the
    /// connection; records it.
    fn refusal(&self, status: StatusCode) -> Vec<u8> {
        let id = request_id::next();
        let id = id.to_str().unwrap_or_default();
        let trouble = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Trouble::HeadTooLarge,
            StatusCode::URI_TOO_LONG => Trouble::TargetTooLong,
            _ => Trouble::Unreadable,
        };
        self.note(&trouble, id, None, None);
        let telemetry = self.engine.telemetry();
        telemetry.record_response(Listener::Gateway, status.as_u16(), || id);
        closing_response(&trouble.problem(), id)
    }
}
