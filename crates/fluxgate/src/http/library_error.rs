//! The responses that hyper writes by itself to heads that it cannot read.
//!
//! They consist of a status line. Clients get a problem document instead, as with every
//! other error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::io::AsyncWrite;

use fluxgate_tower::Problem;

/// Returns the status if `bytes` are the whole of such a response.
pub(crate) fn library_error(bytes: &[u8]) -> Option<StatusCode> {
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
pub(crate) fn closing_response(problem: &Problem, request_id: &str) -> Vec<u8> {
    let status = problem.status();
    let mut body = Vec::new();
    problem.write(&mut body);
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\nx-request-id: {request_id}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    );
    let mut answer = head.into_bytes();
    answer.append(&mut body);
    answer
}

/// A response that is written in place of the library's.
#[derive(Debug)]
pub(crate) struct ReplacementResponse {
    bytes: Vec<u8>,
    written: usize,
    /// The length of the replaced response.
    length: usize,
}

impl ReplacementResponse {
    /// Writes `bytes` in place of a response of `length` bytes.
    pub(crate) fn new(bytes: Vec<u8>, length: usize) -> Self {
        Self {
            bytes,
            written: 0,
            length,
        }
    }

    /// Writes all of it; returns the length that the library expects to have written.
    pub(crate) fn poll_write<S: AsyncWrite + Unpin>(
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
