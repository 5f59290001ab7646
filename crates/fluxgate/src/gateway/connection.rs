//! One connection of a client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::Client;
use super::guarded::Guarded;
use super::pulse::Pulse;
use super::streams::Streams;
use super::tunnel::Slot;
use super::{Gateway, express};
use crate::config::{Limits, Timeouts};
use crate::engine::Listener;
use crate::server::{Begun, until_closing};

/// The least that the library can work with.
const LEAST_BUFFER: usize = 8 * 1024;
/// What a head may have where there is no bound.
const MOST_HEAD: u64 = 1 << 30;
const MOST_STREAMS: u32 = 1_000;

/// How HTTP is spoken with clients.
#[derive(Clone, Debug)]
pub(super) struct Speech {
    http1: http1::Builder,
    http2: http2::Builder<Streams>,
}

impl Speech {
    pub(super) fn new(limits: &Limits, timeouts: &Timeouts) -> Self {
        let most = limits.header_bytes.map_or(MOST_HEAD, u64::from);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut http1 = http1::Builder::new();
        // The connection itself minds its timeouts.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_header_size(most)
            .max_buf_size(most.max(LEAST_BUFFER));
        let idle = timeouts.idle;
        let mut http2 = http2::Builder::new(Streams { idle });
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(most).unwrap_or(u32::MAX))
            .max_concurrent_streams(MOST_STREAMS)
            .keep_alive_interval(Some(idle))
            .keep_alive_timeout(timeouts.headers);
        Self { http1, http2 }
    }
}

impl Gateway {
    /// Serves a connection until it ends. When `closing` closes, what is in flight
    /// is answered, and the connection ends then.
    pub(crate) async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        closing: CancellationToken,
    ) {
        let Ok(port) = stream.local_addr().map(|address| address.port()) else {
            return;
        };
        let client = Arc::new(Client {
            peer,
            port,
            is_secure: self.tls.is_some(),
            pulse: Arc::new(Pulse::default()),
            tunnels: Slot::default(),
            closing,
        });
        let Some(tls) = &self.tls else {
            let came = (peer, port);
            let plain = express::serve(stream, came, &self, &client.closing);
            if let Some((stream, read)) = plain.await {
                // What is large is boxed, so that plain connections are not.
                Box::pin(self.serve_stream(Begun::new(read, stream), &client)).await;
            }
            return;
        };
        let greeted = Box::pin(TlsAcceptor::from(tls.now()).accept(stream));
        let greeted = until_closing(greeted, &client.closing);
        match tokio::time::timeout(self.timeouts.headers, greeted).await {
            Ok(Some(Ok(stream))) => {
                let stream = Begun::new(Vec::new(), stream);
                Box::pin(self.serve_stream(stream, &client)).await;
            }
            Ok(Some(Err(error))) => tracing::debug!(%error, "no TLS"),
            // Nobody began in time.
            Ok(None) | Err(_) => {}
        }
    }

    /// Serves a connection of which something may have been read.
    pub(super) async fn serve_stream<S>(
        self: &Arc<Self>,
        mut stream: Begun<S>,
        client: &Arc<Client>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let is_http2 = until_closing(stream.is_http2(), &client.closing);
        let first_head_by = Instant::now() + self.timeouts.headers;
        let is_http2 = tokio::time::timeout_at(first_head_by, is_http2).await;
        let Ok(Some(Ok(is_http2))) = is_http2 else {
            return;
        };
        let pulse = Arc::clone(&client.pulse);
        let stream = Guarded::new(stream, pulse, Arc::clone(self), is_http2, first_head_by);
        let stream = TokioIo::new(stream);
        let service = service_fn(|request| {
            let (gateway, client) = (Arc::clone(self), Arc::clone(client));
            // Idle connections are many, and need no room for it.
            Box::pin(async move { Ok::<_, Infallible>(gateway.answer(request, &client).await) })
        });
        let ended = if is_http2 {
            let connection = self.speech.http2.serve_connection(stream, service);
            let mut connection = Box::pin(connection);
            tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = async {
                    tokio::select! {
                        () = client.closing.cancelled() => {}
                        () = client.pulse.tired() => {}
                    }
                } => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        } else {
            let connection = self.speech.http1.serve_connection(stream, service);
            let mut connection = Box::pin(connection.with_upgrades());
            match until_closing(connection.as_mut(), &client.closing).await {
                Some(ended) => ended,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        // A client that breaks off or talks nonsense harms only itself.
        if let Err(error) = ended {
            let listener = Listener::Gateway.name();
            tracing::debug!(listener, %error, "a connection ended early");
        }
        if let Some(tunnel) = client.tunnels.take() {
            Box::pin(tunnel.run(self.timeouts.idle, &client.closing)).await;
        }
    }
}
