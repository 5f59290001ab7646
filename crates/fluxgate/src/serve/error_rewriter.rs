//! Replaces the error responses that hyper writes by itself with problem documents.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::http::{
    Listener, Problem, ReplacementResponse, closing_response, library_error, request_id,
};
use crate::telemetry::Telemetry;

/// How long to read after the last response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The size of a read.
const SCRATCH: usize = 16 * 1024;

/// A connection whose library errors are rewritten.
#[derive(Debug)]
pub(super) struct ErrorRewriter<S> {
    stream: S,
    telemetry: Arc<Telemetry>,
    listener: Listener,
    /// The response that is written in place of the library's.
    replacement: Option<ReplacementResponse>,
    /// Until when to read: if the connection were closed with unread input, the client
    /// might never see the response.
    drain: Option<Pin<Box<Sleep>>>,
    /// Whether our side has been shut down.
    is_shut: bool,
}

impl<S> ErrorRewriter<S> {
    pub(super) fn new(stream: S, telemetry: Arc<Telemetry>, listener: Listener) -> Self {
        Self {
            stream,
            telemetry,
            listener,
            replacement: None,
            drain: None,
            is_shut: false,
        }
    }

    /// Returns the whole response to a head that is refused with this status.
    fn response(&self, status: StatusCode) -> Vec<u8> {
        let detail = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "the head is larger than 64 KiB, or has more than 100 lines"
            }
            StatusCode::URI_TOO_LONG => "the target is too long",
            _ => "the request cannot be parsed",
        };
        let id = request_id::next();
        let id = id.to_str().unwrap_or_default();
        self.telemetry
            .record_response(self.listener, status.as_u16(), || id);
        closing_response(&Problem::new(status, detail), id)
    }
}

impl<S: AsyncRead + Unpin> ErrorRewriter<S> {
    /// Reads and discards until the client is done or the time is over.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(time) = &mut self.drain else {
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

impl<S: AsyncWrite + Unpin> ErrorRewriter<S> {
    /// Writes the replacement if `bytes` are an error response of the library.
    fn poll_replacement(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.replacement.is_none() {
            let status = library_error(bytes)?;
            self.replacement = Some(ReplacementResponse::new(self.response(status), bytes.len()));
            self.drain = Some(Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
        }
        let written = self
            .replacement
            .as_mut()?
            .poll_write(&mut self.stream, context);
        if written.is_ready() {
            self.replacement = None;
        }
        Some(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ErrorRewriter<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ErrorRewriter<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.poll_replacement(context, bytes) {
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
        let replaced = match pieces {
            [only] => this.poll_replacement(context, only),
            _ => None,
        };
        match replaced {
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
        ready!(this.poll_drain(context));
        Poll::Ready(Ok(()))
    }
}
