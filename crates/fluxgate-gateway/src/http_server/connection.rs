//! One client connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use fluxgate_http::server::{
    ClientStream, ErrorRewriter, LibraryErrors, Listener, Origin, PrefixedStream, closing_response,
    until_closing,
};
use http::StatusCode;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::service::HttpService;
use super::tunnel::PendingTunnel;
use crate::engine::{Engine, RequestFacts};
use crate::error::GatewayError;
use crate::fast_path;
use crate::gateway::Gateway;
use crate::received_request::ConnectionInfo;
use crate::request_record::RequestRecord;
use crate::timeouts::{ConnectionState, TimeoutStream, idle_after_parking};

/// A parked connection, and what has been read of its next request.
type ParkedConnection<S> = (S, Vec<u8>);

/// Serves a connection until it ends. Once `closing` is cancelled, requests in flight are
/// answered and the connection ends.
pub async fn serve<E: Engine, S: ClientStream>(
    gateway: Arc<Gateway<E>>,
    stream: S,
    peer: SocketAddr,
    closing: CancellationToken,
) {
    let Ok(port) = stream.tcp().local_addr().map(|address| address.port()) else {
        return;
    };
    let connection = ClientConnection {
        gateway: &gateway,
        info: ConnectionInfo::new(peer, port, stream.is_secure()),
        closing: &closing,
    };
    if stream.has_negotiated_http2() {
        Box::pin(connection.serve_with_hyper((stream, Vec::new()))).await;
    } else {
        connection.serve_http1(stream).await;
    }
}

/// A connection, apart from its stream.
struct ClientConnection<'a, E> {
    gateway: &'a Arc<Gateway<E>>,
    info: ConnectionInfo,
    closing: &'a CancellationToken,
}

impl<E: Engine> ClientConnection<'_, E> {
    /// Serves a connection over the fast path, and with hyper where a request needs it.
    async fn serve_http1<S: ClientStream>(&self, mut stream: S) {
        let timeouts = self.gateway.config().timeouts;
        // A client that connects has a request to send.
        let mut timeout = timeouts.headers;
        loop {
            let served = fast_path::serve(stream, &self.info, self.gateway, self.closing, timeout);
            let Some(mut parked) = served.await else {
                return;
            };
            while !parked.1.is_empty() {
                // Boxed, so that connections on the fast path reserve no space for this large
                // future.
                let served = Box::pin(self.serve_with_hyper(parked));
                match served.await {
                    Some(again) => parked = again,
                    None => return,
                }
            }
            stream = parked.0;
            timeout = idle_after_parking(&timeouts);
        }
    }

    /// Serves a connection with hyper. Returns it when it can be parked: an idle connection
    /// needs none of hyper's memory.
    async fn serve_with_hyper<S: ClientStream>(
        &self,
        (stream, read): ParkedConnection<S>,
    ) -> Option<ParkedConnection<S>> {
        let Self {
            gateway,
            ref info,
            closing,
        } = *self;
        // A connection keeps its timeouts and limits; its requests find new routes.
        let config = gateway.config();
        let timeouts = config.timeouts;
        let mut stream = PrefixedStream::new(read, stream);
        let service = Arc::new(HttpService {
            gateway: Arc::clone(gateway),
            info: info.clone(),
            state: Arc::new(ConnectionState::default()),
            tunnel: PendingTunnel::default(),
            closing: closing.clone(),
        });
        let first_head_by = Instant::now() + timeouts.headers;
        let is_http2 = until_closing(stream.is_http2(), closing);
        let is_http2 = tokio::time::timeout_at(first_head_by, is_http2).await;
        let Ok(Some(Ok(is_http2))) = is_http2 else {
            return None;
        };
        let stream = ErrorRewriter::new(
            stream,
            HeadErrors {
                gateway: Arc::clone(gateway),
                state: Arc::clone(&service.state),
                client: info.clone(),
                is_http2,
            },
        );
        let state = Arc::clone(&service.state);
        let stream = TimeoutStream::new(stream, state, timeouts, is_http2, first_head_by);
        let stream = TokioIo::new(stream);
        let respond = service_fn(|request| {
            let service = Arc::clone(&service);
            // Boxed, so that the many idle connections reserve no space for this large future.
            Box::pin(async move { Ok::<_, Infallible>(service.respond(request).await) })
        });
        if is_http2 {
            let connection = config.builders.http2.serve_connection(stream, respond);
            let mut connection = Box::pin(connection);
            drop(config);
            let ended = tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = async {
                    tokio::select! {
                        () = closing.cancelled() => {}
                        () = service.state.expired.notified() => {}
                    }
                } => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            log_end(ended);
            return None;
        }
        let mut connection = Box::new(config.builders.http1.serve_connection(stream, respond));
        drop(config);
        let ended = tokio::select! {
            biased;
            ended = until_closing(&mut *connection, closing) => match ended {
                Some(ended) => ended,
                None => {
                    std::pin::Pin::new(&mut *connection).graceful_shutdown();
                    (&mut *connection).await
                }
            },
            () = service.state.parked.notified() => {
                let parts = connection.into_parts();
                let stream = parts.io.into_inner().into_inner().into_inner();
                let (mut read, stream) = stream.into_parts();
                read.splice(..0, parts.read_buf);
                return Some((stream, read));
            }
        };
        log_end(ended);
        if let Some(tunnel) = service.tunnel.take() {
            let parts = connection.into_parts();
            let stream = PrefixedStream::new(parts.read_buf.into(), parts.io.into_inner());
            Box::pin(tunnel.run(stream, timeouts.idle, closing)).await;
        }
        None
    }
}

/// A client that disconnects or violates the protocol harms only itself.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        let listener = Listener::Gateway.name();
        tracing::debug!(listener, %error, "a connection ended early");
    }
}

/// Answers heads that hyper refuses.
struct HeadErrors<E> {
    gateway: Arc<Gateway<E>>,
    state: Arc<ConnectionState>,
    client: ConnectionInfo,
    is_http2: bool,
}

impl<E: Engine> LibraryErrors for HeadErrors<E> {
    fn replace(&mut self, status: StatusCode) -> Option<Vec<u8>> {
        // While a request is in flight, the bytes belong to its response.
        if self.is_http2 || !self.state.is_answered() {
            return None;
        }
        let error = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => GatewayError::HeadTooLarge,
            StatusCode::URI_TOO_LONG => GatewayError::TargetTooLong,
            _ => GatewayError::Unreadable,
        };
        let origin = Origin::of(Listener::Gateway);
        let gateway = &self.gateway;
        let config = gateway.config();
        config.policy.log_refusal(&error, &origin, None, None);
        let mut record = RequestRecord::start(gateway.observer.is_some());
        record.status = Some(status.as_u16());
        record.failed(|| error.to_string());
        let facts = RequestFacts::unreadable(&origin, &self.client);
        let observer = gateway.observer.as_deref().map(|it| (it, facts));
        record.finish(&gateway.unrouted, None, observer);
        gateway.engine.record_response(status.as_u16(), &origin);
        Some(closing_response(&error.problem(), origin.request_id()))
    }

    fn has_unread(&self) -> bool {
        self.state.has_unread()
    }
}
