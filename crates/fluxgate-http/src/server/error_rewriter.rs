//! Replaces the error responses that hyper writes by itself with problem documents.
//!
//! hyper answers a head that it cannot read with a bare status line. Clients get a problem
//! document with a request id instead, as with every other error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::closing::DRAIN_TIMEOUT;
use super::head::{write_header, write_number, write_status};
use super::request_id;
use crate::problem::{PROBLEM_JSON, Problem};

/// The size of a read.
const SCRATCH: usize = 16 * 1024;

/// How a server answers in place of hyper.
pub trait LibraryErrors {
    /// Returns the whole response to a head that hyper refuses with this status, or `None`
    /// if the bytes are part of another response.
    fn replace(&mut self, status: StatusCode) -> Option<Vec<u8>>;

    /// Returns whether the client may still be sending input that is never read.
    fn has_unread(&self) -> bool {
        false
    }
}

/// A connection whose library errors are rewritten, and which is drained before it closes:
/// if it were closed with unread input, the client might never see the last response.
#[derive(Debug)]
pub struct ErrorRewriter<S, L> {
    stream: S,
    errors: L,
    /// The response that is written in place of the library's.
    replacement: Option<Replacement>,
    /// Whether a library error was replaced.
    has_replaced: bool,
    /// Whether our side has been shut down.
    is_shut: bool,
    /// Until when to read.
    drain: Option<Pin<Box<Sleep>>>,
}

/// A response that is written in place of the library's.
#[derive(Debug)]
struct Replacement {
    bytes: Vec<u8>,
    written: usize,
    /// The length of the replaced response.
    length: usize,
}

impl<S, L> ErrorRewriter<S, L> {
    /// Rewrites the library errors of a connection.
    pub fn new(stream: S, errors: L) -> Self {
        Self {
            stream,
            errors,
            replacement: None,
            has_replaced: false,
            is_shut: false,
            drain: None,
        }
    }

    /// Returns the connection.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncWrite + Unpin, L: LibraryErrors> ErrorRewriter<S, L> {
    /// Writes the replacement if `bytes` are an error response of the library.
    fn poll_replacement(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.replacement.is_none() {
            self.replacement = Some(Replacement {
                bytes: self.errors.replace(library_error(bytes)?)?,
                written: 0,
                length: bytes.len(),
            });
            self.has_replaced = true;
        }
        let replacement = self.replacement.as_mut()?;
        let written = replacement.poll_write(&mut self.stream, context);
        if written.is_ready() {
            self.replacement = None;
        }
        Some(written)
    }
}

impl<S: AsyncRead + Unpin, L> ErrorRewriter<S, L> {
    /// Reads and discards until the client is done or the time is over.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let time = self
            .drain
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
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

impl<S: AsyncRead + Unpin, L: Unpin> AsyncRead for ErrorRewriter<S, L> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S, L> AsyncWrite for ErrorRewriter<S, L>
where
    S: AsyncRead + AsyncWrite + Unpin,
    L: LibraryErrors + Unpin,
{
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
        if this.has_replaced || this.errors.has_unread() {
            ready!(this.poll_drain(context));
        }
        Poll::Ready(Ok(()))
    }
}

impl Replacement {
    /// Writes all of it; returns the length that the library expects to have written.
    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        while let Some(rest @ [_, ..]) = self.bytes.get(self.written..) {
            match ready!(Pin::new(&mut *stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        Poll::Ready(Ok(self.length))
    }
}

/// Returns the status if `bytes` are the whole of such a response.
fn library_error(bytes: &[u8]) -> Option<StatusCode> {
    let rest = bytes.strip_prefix(b"HTTP/1.1 4")?;
    let is_bare = rest.ends_with(b"\r\n\r\n") && rest.len() < 160;
    let text = std::str::from_utf8(rest).ok().filter(|_| is_bare)?;
    let mut lines = text.split("\r\n").skip(1).filter(|line| !line.is_empty());
    let is_known = |line: &str| {
        line == "connection: close" || line == "content-length: 0" || line.starts_with("date: ")
    };
    let code = 400 + text.get(..2)?.parse::<u16>().ok()?;
    lines
        .all(is_known)
        .then(|| StatusCode::from_u16(code).ok())?
}

/// Returns the whole response for `problem`, which closes the connection.
pub fn closing_response(problem: &Problem, id: &str) -> Vec<u8> {
    let mut body = Vec::new();
    problem.write(&mut body);
    let mut response = Vec::new();
    write_status(&mut response, problem.status());
    write_header(&mut response, "content-type", PROBLEM_JSON.as_bytes());
    write_header(&mut response, request_id::NAME, id.as_bytes());
    write_header(&mut response, "connection", b"close");
    write_number(&mut response, "content-length", body.len());
    response.extend_from_slice(b"\r\n");
    response.append(&mut body);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_responses_are_taken_for_the_librarys() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                    content-length: 0\r\ndate: Sun, 15 Nov 2026 12:11:23 GMT\r\n\r\n";
        assert_eq!(
            library_error(bare.as_bytes()).map(|it| it.as_u16()),
            Some(431)
        );
        for other in [
            bare.replace("HTTP/1.1 4", "HTTP/1.1 5"),
            bare.replace("date:", "x-request-id: 1\r\ndate:"),
            bare.replace("content-length: 0", "content-length: 1"),
            format!("{bare}x"),
            bare.trim_end().into(),
        ] {
            assert_eq!(library_error(other.as_bytes()), None, "{other}");
        }
    }
}
