//! A connection on which the HTTP library's own errors are told like all others.
//!
//! To a head that it cannot read, or that is too large, the library answers by no
//! more than the status.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::instead::Instead;
use super::own_error::{last_answer, own_error};
use super::request_id;
use crate::api::Problem;
use crate::engine::{Engine, Listener};

/// How long is read on for once the last answer is sent.
const LAST_READ: Duration = Duration::from_secs(1);
/// How much at once.
const SCRATCH: usize = 16 * 1024;

/// The connection.
#[derive(Debug)]
pub(super) struct Telling<S> {
    stream: S,
    engine: Arc<Engine>,
    listener: Listener,
    /// What is written in place of an answer of the library's own.
    instead: Option<Instead>,
    /// Reads on for a while: were the connection closed over unread bytes, the
    /// client might never see its answer.
    last_read: Option<Pin<Box<Sleep>>>,
    /// Whether our side has been closed.
    is_shut: bool,
}

impl<S> Telling<S> {
    pub(super) fn new(stream: S, engine: Arc<Engine>, listener: Listener) -> Self {
        Self {
            stream,
            engine,
            listener,
            instead: None,
            last_read: None,
            is_shut: false,
        }
    }

    /// The whole answer to a head that is refused with this status, after which
    /// the connection ends.
    fn refusal(&self, status: StatusCode) -> Vec<u8> {
        let detail = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "the head is larger than 64 KiB, or has more than 100 lines"
            }
            StatusCode::URI_TOO_LONG => "the target is too long",
            _ => "this is no request that can be read",
        };
        let id = request_id::next();
        let id = id.to_str().unwrap_or_default();
        let telemetry = self.engine.telemetry();
        telemetry.answered(self.listener, status.as_u16(), || id);
        last_answer(&Problem::new(status, detail), id)
    }
}

impl<S: AsyncRead + Unpin> Telling<S> {
    /// Reads on, in vain, until the client has done or the time is over.
    fn poll_last_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(time) = &mut self.last_read else {
            return Poll::Ready(());
        };
        let mut scratch = [0; SCRATCH];
        loop {
            if time.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            match ready!(read) {
                Ok(()) if !buffer.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Telling<S> {
    /// Writes something else, if this is what the library says by itself.
    fn poll_instead(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.instead.is_none() {
            let status = own_error(bytes)?;
            self.instead = Some(Instead::new(self.refusal(status), bytes.len()));
            self.last_read = Some(Box::pin(tokio::time::sleep(LAST_READ)));
        }
        let written = self.instead.as_mut()?.poll_write(&mut self.stream, context);
        if written.is_ready() {
            self.instead = None;
        }
        Some(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Telling<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Telling<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.poll_instead(context, bytes) {
            Some(written) => written,
            None => Pin::new(&mut this.stream).poll_write(context, bytes),
        }
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
        match instead {
            Some(written) => written,
            None => Pin::new(&mut this.stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            this.is_shut = true;
        }
        ready!(this.poll_last_read(context));
        Poll::Ready(Ok(()))
    }
}
