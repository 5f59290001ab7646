//! Serves the connections of each listener, with and without TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use fluxgate_gateway::Gateway;
use fluxgate_http::server::{ClientStream, Listener};
use futures_util::future::Either;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::{ApiState, fast_path};
use crate::engine::Engine;
use crate::resp::RespServer;
use crate::serve::{Acceptor, HttpServer, ListenerTls, PeerAddress, ProxyProtocol};

/// Serves the connections of a listener.
pub(super) trait Connections: Clone + Send + 'static {
    /// Serves a connection until it ends.
    fn serve<S: ClientStream>(
        self,
        stream: S,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + 'static;
}

/// A listener on this core.
pub(super) struct ListeningPort {
    pub(super) listener: Listener,
    pub(super) socket: TcpListener,
    pub(super) tls: Option<ListenerTls>,
    /// How the first bytes of connections are read, if they name the client.
    pub(super) proxy: Option<ProxyProtocol>,
}

impl ListeningPort {
    /// Accepts connections and serves them, until the service shuts down.
    pub(super) fn serve(self, acceptor: &Acceptor, connections: impl Connections) {
        let (tls, proxy, closing) = (self.tls, self.proxy, acceptor.closing.clone());
        acceptor.spawn(self.listener, self.socket, move |mut stream, mut peer| {
            let connections = connections.clone();
            if tls.is_none() && proxy.is_none() {
                return Either::Left(connections.serve(stream, peer));
            }
            let (tls, proxy, closing) = (tls.clone(), proxy.clone(), closing.clone());
            // Boxed, so that plain connections reserve no space for it.
            Either::Right(Box::pin(async move {
                if let Some(proxy) = proxy {
                    match proxy.accept(&mut stream, peer, &closing).await {
                        Some(client) => peer = client,
                        None => return,
                    }
                }
                let Some(tls) = tls else {
                    return connections.serve(stream, peer).await;
                };
                if let Some(stream) = tls.accept(stream, &closing).await {
                    connections.serve(stream, peer).await;
                }
            }))
        });
    }
}

/// Serves the HTTP API.
#[derive(Clone)]
pub(super) struct ApiConnections {
    pub(super) server: HttpServer,
    pub(super) api: Arc<ApiState>,
    pub(super) closing: CancellationToken,
}

impl Connections for ApiConnections {
    async fn serve<S: ClientStream>(self, mut stream: S, peer: SocketAddr) {
        // A client that negotiates HTTP/2 sends nothing for the fast path.
        let prefix = if stream.has_negotiated_http2() {
            Some(Vec::new())
        } else {
            fast_path::serve(&mut stream, &self.api, &self.closing).await
        };
        if let Some(prefix) = prefix {
            let peer = PeerAddress(peer.ip());
            self.server.serve(prefix, stream, peer, self.closing).await;
        }
    }
}

/// Serves gRPC.
#[derive(Clone)]
pub(super) struct GrpcConnections {
    pub(super) server: HttpServer,
    pub(super) closing: CancellationToken,
}

impl Connections for GrpcConnections {
    fn serve<S: ClientStream>(
        self,
        stream: S,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + 'static {
        let peer = PeerAddress(peer.ip());
        self.server.serve(Vec::new(), stream, peer, self.closing)
    }
}

impl Connections for RespServer {
    fn serve<S: ClientStream>(
        self,
        stream: S,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + 'static {
        RespServer::serve(self, stream, peer)
    }
}

/// Serves the gateway.
#[derive(Clone)]
pub(super) struct GatewayConnections {
    pub(super) gateway: Arc<Gateway<Engine>>,
    pub(super) closing: CancellationToken,
}

impl Connections for GatewayConnections {
    fn serve<S: ClientStream>(
        self,
        stream: S,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + 'static {
        fluxgate_gateway::serve(self.gateway, stream, peer, self.closing)
    }
}
