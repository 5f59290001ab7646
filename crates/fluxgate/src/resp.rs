//! Decisions over the Redis protocol.

mod buffers;
mod check;
mod client;
mod command;
mod command_info;
mod connection;
mod hold;
mod info;
mod reply;
mod request;
mod session;
mod throttle;
mod transaction;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_http::server::ClientStream;
use socket2::{SockRef, TcpKeepalive};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use client::Client;
use connection::Connection;
use session::Session;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use session::fuzz;

/// How long a connection may be idle before TCP probes its client.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// The server of the Redis protocol.
#[derive(Clone, Debug)]
pub(crate) struct RespServer {
    engine: Arc<Engine>,
    closing: CancellationToken,
}

impl RespServer {
    /// Creates a server that stops when `closing` is cancelled.
    pub(crate) fn new(engine: Arc<Engine>, closing: CancellationToken) -> Self {
        info::record_start();
        Self { engine, closing }
    }

    /// Serves a connection until it ends. When the service shuts down, it answers the
    /// requests received so far and closes the connection.
    pub(crate) async fn serve<S: ClientStream>(self, stream: S, peer: SocketAddr) {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        // Without it, dead clients are only detected later.
        let _ = SockRef::from(stream.tcp()).set_tcp_keepalive(&keepalive);
        let client = Client::new(peer, stream.tcp().local_addr().ok());
        let session = Session::new(self.engine, client);
        let served = Connection::new(stream, session).serve(&self.closing).await;
        if let Err(error) = served {
            tracing::debug!(listener = "resp", %error, "a connection ended early");
        }
    }
}
