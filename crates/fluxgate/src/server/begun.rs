//! A connection of which something has been read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// How a connection begins that speaks HTTP/2. All of it is waited for here, where
/// there is a bound on how long that may take.
const HTTP2_BEGINS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes have been read.
#[derive(Debug)]
pub(crate) struct Begun<S> {
    first: Vec<u8>,
    /// How many of them have been read again.
    seen: usize,
    stream: S,
}

impl<S> Begun<S> {
    pub(crate) fn new(first: Vec<u8>, stream: S) -> Self {
        Self {
            first,
            seen: 0,
            stream,
        }
    }
}

impl<S> Begun<S> {
    /// What has been read and not been read again, and the connection.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, S) {
        self.first.drain(..self.seen);
        (self.first, self.stream)
    }
}

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Whether it speaks HTTP/2; reads no more than is needed to know.
    pub(crate) async fn is_http2(&mut self) -> io::Result<bool> {
        while self.first.len() < HTTP2_BEGINS.len() && HTTP2_BEGINS.starts_with(&self.first) {
            if self.stream.read_buf(&mut self.first).await? == 0 {
                return Ok(false);
            }
        }
        Ok(self.first.starts_with(HTTP2_BEGINS))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = &this.first[this.seen..];
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        this.seen += count;
        if this.seen == this.first.len() {
            this.first = Vec::new();
            this.seen = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
