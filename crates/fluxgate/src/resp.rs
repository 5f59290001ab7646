//! Decisions over the Redis protocol.

mod buffers;
mod check;
mod client;
mod command;
mod connection;
mod describe;
mod hello;
mod info;
mod reply;
mod request;
mod run;
mod session;
mod throttle;
mod transaction;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use client::Client;
use connection::Connection;
use session::Session;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use session::any_bytes;

/// How long a connection may be silent before its client is asked for a sign
/// of life.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// How connections are served.
#[derive(Clone, Debug)]
pub(crate) struct RespServer {
    engine: Arc<Engine>,
    closing: CancellationToken,
}

impl RespServer {
    /// Serves until `closing` closes.
    pub(crate) fn new(engine: Arc<Engine>, closing: CancellationToken) -> Self {
        info::started();
        Self { engine, closing }
    }

    /// Serves a connection until it ends. When the service closes, what has
    /// come in by then is answered, and the connection ends.
    pub(crate) async fn serve(self, stream: TcpStream, peer: SocketAddr) {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        // If it cannot be set, dead clients are merely noticed later.
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let client = Client::new(peer, stream.local_addr().ok());
        let session = Session::new(self.engine, client);
        let served = Connection::new(stream, session).serve(&self.closing).await;
        // A client that breaks off harms only itself.
        if let Err(error) = served {
            tracing::debug!(listener = "resp", %error, "a connection ended early");
        }
    }
}
