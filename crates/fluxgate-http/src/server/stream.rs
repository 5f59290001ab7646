//! A connection of a client, and one whose first bytes have been read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The connection preface of HTTP/2 (RFC 9113, section 3.4). All of it is read here,
/// where the caller bounds how long that may take.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads `prefix` again before it reads from the connection.
#[derive(Debug)]
pub struct PrefixedStream<S> {
    prefix: Vec<u8>,
    /// How much of the prefix has been read again.
    read: usize,
    stream: S,
}

impl<S> PrefixedStream<S> {
    /// Reads `prefix` again before `stream`.
    pub fn new(prefix: Vec<u8>, stream: S) -> Self {
        Self {
            prefix,
            read: 0,
            stream,
        }
    }

    /// Returns the rest of the prefix and the connection.
    pub fn into_parts(mut self) -> (Vec<u8>, S) {
        self.prefix.drain(..self.read);
        (self.prefix, self.stream)
    }
}

impl<S: AsyncRead + Unpin> PrefixedStream<S> {
    /// Whether the client speaks HTTP/2; reads no more than is needed to know.
    pub async fn is_http2(&mut self) -> io::Result<bool> {
        while self.prefix.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&self.prefix) {
            if self.stream.read_buf(&mut self.prefix).await? == 0 {
                return Ok(false);
            }
        }
        Ok(self.prefix.starts_with(HTTP2_PREFACE))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefixedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = &this.prefix[this.read..];
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        this.read += count;
        if this.read == this.prefix.len() {
            this.prefix = Vec::new();
            this.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefixedStream<S> {
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

/// A connection of a client, over TCP or TLS.
pub trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    /// Returns the TCP connection.
    fn tcp(&self) -> &TcpStream;

    /// Returns whether it is encrypted.
    fn is_secure(&self) -> bool;

    /// Returns whether client and server have agreed on HTTP/2.
    fn has_negotiated_http2(&self) -> bool;
}

impl ClientStream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }

    fn is_secure(&self) -> bool {
        false
    }

    fn has_negotiated_http2(&self) -> bool {
        false
    }
}

/// In a box: the futures of a connection move it several times.
impl ClientStream for Box<TlsStream<TcpStream>> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }

    fn is_secure(&self) -> bool {
        true
    }

    fn has_negotiated_http2(&self) -> bool {
        self.get_ref().1.alpn_protocol() == Some(b"h2")
    }
}
