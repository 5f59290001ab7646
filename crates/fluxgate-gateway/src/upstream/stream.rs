//! A connection to an upstream, over TCP or TLS.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::connection_limit::ConnectionPermit;
use crate::timeouts::Deadline;

/// A connection to an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamStream {
    transport: Transport,
    /// Bounds what the connection is waited for. It belongs to the connection so that its
    /// timer serves many requests.
    pub(crate) deadline: Deadline,
    /// Counts the connection for as long as it is open.
    _permit: ConnectionPermit,
}

#[derive(Debug)]
pub(super) enum Transport {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl UpstreamStream {
    pub(super) fn new(transport: Transport, permit: ConnectionPermit) -> Self {
        Self {
            transport,
            deadline: Deadline::default(),
            _permit: permit,
        }
    }

    /// Returns whether an idle connection can carry another request: the upstream has neither
    /// closed it nor sent anything. It queries the kernel because the runtime may not have
    /// noticed yet, and a request that is sent over a closed connection cannot be repeated.
    pub(super) fn is_open(&mut self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let tcp = match &self.transport {
            Transport::Tcp(tcp) => tcp,
            Transport::Tls(tls) => tls.get_ref().0,
        };
        let peeked = SockRef::from(tcp).peek(&mut byte);
        if peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            return true;
        }
        // Session tickets may arrive at any time.
        let Transport::Tls(tls) = &mut self.transport else {
            return false;
        };
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(tls).poll_read(&mut cx, &mut ReadBuf::new(&mut [0]));
        read.is_pending()
    }

    /// Reads into `buffer`; returns how much was read.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let polled = Pin::new(self).poll_read(cx, &mut buffer);
        polled.map_ok(|()| buffer.filled().len())
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Transport::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Transport::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Transport::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Tcp(_) => Poll::Ready(Ok(())),
            Transport::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Transport::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
