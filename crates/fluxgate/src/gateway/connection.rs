//! One connection of a client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::Client;
use super::guarded::{Guarded, idle_after_rest};
use super::pulse::Pulse;
use super::streams::Streams;
use super::tunnel::Slot;
use super::{Gateway, express};
use crate::config::{Limits, Timeouts};
use crate::http::{Listener, PrefixedStream, until_closing};

/// The least that the library can work with.
const LEAST_BUFFER: usize = 8 * 1024;
/// What a head may have where there is no bound.
const MOST_HEAD: u64 = 1 << 30;

/// Where a connection comes from, and when it is to end.
struct Came {
    peer: SocketAddr,
    /// The port that it came to.
    port: u16,
    closing: CancellationToken,
}

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
            .max_concurrent_streams(limits.streams)
            .keep_alive_interval(Some(idle))
            .keep_alive_timeout(timeouts.headers);
        Self { http1, http2 }
    }
}

/// A connection that is at rest, and what has been read of its next request.
type AtRest<S> = (S, Vec<u8>);

impl Gateway {
    /// Serves a connection until it ends. When `closing` closes, what is in flight
    /// is answered, and the connection ends then.
    pub(crate) async fn serve(
        self: Arc<Self>,
        mut stream: TcpStream,
        peer: SocketAddr,
        closing: CancellationToken,
    ) {
        let Ok(port) = stream.local_addr().map(|address| address.port()) else {
            return;
        };
        let came = Came {
            peer,
            port,
            closing,
        };
        // A client that connects has a request to send.
        let mut within = self.timeouts.headers;
        let Some(tls) = &self.tls else {
            loop {
                let plain = express::serve(stream, (peer, port), &self, &came.closing, within);
                let Some(mut rest) = plain.await else { return };
                // What is large is boxed, so that plain connections are not.
                while !rest.1.is_empty() {
                    let served = Box::pin(self.serve_stream(rest, &came, self.timeouts.headers));
                    match served.await {
                        Some(at_rest) => rest = at_rest,
                        None => return,
                    }
                }
                stream = rest.0;
                within = idle_after_rest(&self.timeouts);
            }
        };
        let greeted = Box::pin(TlsAcceptor::from(tls.current()).accept(stream));
        let greeted = until_closing(greeted, &came.closing);
        match tokio::time::timeout(self.timeouts.headers, greeted).await {
            Ok(Some(Ok(stream))) => {
                let mut rest = (stream, Vec::new());
                while let Some(at_rest) = Box::pin(self.serve_stream(rest, &came, within)).await {
                    rest = at_rest;
                    within = idle_after_rest(&self.timeouts);
                }
            }
            Ok(Some(Err(error))) => tracing::debug!(%error, "no TLS"),
            // Nobody began in time.
            Ok(None) | Err(_) => {}
        }
    }

    /// Serves a connection of which something may have been read, and on which
    /// something must come `within` so long. Gives it back when it is at rest, so
    /// that an idle connection holds none of the memory that its requests took.
    async fn serve_stream<S>(
        self: &Arc<Self>,
        (stream, read): (S, Vec<u8>),
        came: &Came,
        within: Duration,
    ) -> Option<AtRest<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut stream = PrefixedStream::new(read, stream);
        let client = &Arc::new(Client {
            peer: came.peer,
            port: came.port,
            is_secure: self.tls.is_some(),
            pulse: Arc::new(Pulse::default()),
            tunnels: Slot::default(),
            closing: came.closing.clone(),
        });
        let begun = Instant::now();
        let is_http2 = until_closing(stream.is_http2(), &client.closing);
        let is_http2 = tokio::time::timeout_at(begun + within, is_http2).await;
        let Ok(Some(Ok(is_http2))) = is_http2 else {
            return None;
        };
        // Where more time is given than for a head, that is for it to begin.
        let headers = self.timeouts.headers;
        let first_head_by = match within > headers {
            true => Instant::now() + headers,
            false => begun + headers,
        };
        let pulse = Arc::clone(&client.pulse);
        let stream = Guarded::new(stream, pulse, Arc::clone(self), is_http2, first_head_by);
        let stream = TokioIo::new(stream);
        let service = service_fn(|request| {
            let (gateway, client) = (Arc::clone(self), Arc::clone(client));
            // Idle connections are many, and need no room for it.
            Box::pin(async move { Ok::<_, Infallible>(gateway.answer(request, &client).await) })
        });
        if is_http2 {
            let connection = self.speech.http2.serve_connection(stream, service);
            let mut connection = Box::pin(connection);
            let ended = tokio::select! {
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
            };
            log_end(ended);
            return None;
        }
        let mut connection = Box::new(self.speech.http1.serve_connection(stream, service));
        let ended = tokio::select! {
            biased;
            ended = until_closing(&mut *connection, &client.closing) => match ended {
                Some(ended) => ended,
                None => {
                    std::pin::Pin::new(&mut *connection).graceful_shutdown();
                    (&mut *connection).await
                }
            },
            () = client.pulse.rested() => {
                let parts = connection.into_parts();
                let (mut read, stream) = parts.io.into_inner().into_inner().into_parts();
                read.splice(..0, parts.read_buf);
                return Some((stream, read));
            }
        };
        log_end(ended);
        if let Some(tunnel) = client.tunnels.take() {
            let parts = connection.into_parts();
            let stream = PrefixedStream::new(parts.read_buf.into(), parts.io.into_inner());
            Box::pin(tunnel.run(stream, self.timeouts.idle, &client.closing)).await;
        }
        None
    }
}

/// A client that breaks off or talks nonsense harms only itself.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        let listener = Listener::Gateway.name();
        tracing::debug!(listener, %error, "a connection ended early");
    }
}
