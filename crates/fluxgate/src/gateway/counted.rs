//! A connection that counts what is read from it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::upstream_connections::ConnectionPermit;

/// Counts the bytes that are read.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    read: Arc<AtomicU64>,
    /// Of a connection to an upstream: counts it for as long as it is open.
    permit: Option<ConnectionPermit>,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, read: &Arc<AtomicU64>) -> Self {
        Self {
            stream,
            read: Arc::clone(read),
            permit: None,
        }
    }

    /// The same, which holds this permit until it is closed.
    pub(super) fn holding(mut self, permit: ConnectionPermit) -> Self {
        self.permit = Some(permit);
        self
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        let count = buffer.filled().len().saturating_sub(before);
        if count > 0 {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            this.read.fetch_add(count, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
