//! A connection of a client, over TCP or TLS.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

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
