//! An answer that is written in place of another.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// What is written in place of an answer of the HTTP library's own.
#[derive(Debug)]
pub(crate) struct Instead {
    bytes: Vec<u8>,
    written: usize,
    /// How long the other was.
    length: usize,
}

impl Instead {
    /// These bytes, in place of so many.
    pub(crate) fn new(bytes: Vec<u8>, length: usize) -> Self {
        Self {
            bytes,
            written: 0,
            length,
        }
    }

    /// Writes all of it, and says how much the library takes to be written.
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
