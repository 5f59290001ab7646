//! New connections to upstreams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::counted::Counted;
use super::pool::Connection;
use super::upstream::{Upstream, UpstreamStream};
use super::upstream_connections::{ConnectionPermit, UpstreamConnections};
use crate::config;

/// More than any head of an answer has.
pub(super) const MOST_ANSWER_HEAD: usize = 256 * 1024;
/// How many interim answers (1xx) may come before the one that counts.
pub(super) const MOST_INTERIM: usize = 16;
/// What is wrong with an upstream that sends more.
pub(super) const TOO_MANY_INTERIM: &str = "it never comes to an answer";

/// Connects, over TLS if the upstream wants it, all within so long.
pub(super) async fn open(
    upstream: &Upstream,
    (connections, permit): (&Arc<UpstreamConnections>, ConnectionPermit),
    tls: Option<&Arc<ClientConfig>>,
    within: Duration,
) -> io::Result<Connection> {
    let opened = async {
        let UpstreamStream { tcp, permit } = upstream.connect(permit, within).await?;
        match (&upstream.target, tls) {
            (
                config::Upstream::Http {
                    tls: true, host, ..
                },
                Some(tls),
            ) => {
                let name = host.trim_start_matches('[').trim_end_matches(']');
                let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
                let tls = TlsConnector::from(Arc::clone(tls));
                let stream = tls.connect(name, tcp).await?;
                start(stream, upstream.number, (connections, permit)).await
            }
            _ => start(tcp, upstream.number, (connections, permit)).await,
        }
    };
    let opened = tokio::time::timeout(within, opened).await;
    opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Speaks HTTP/1.1 over it.
async fn start<S>(
    stream: S,
    upstream: usize,
    (connections, permit): (&Arc<UpstreamConnections>, ConnectionPermit),
) -> io::Result<Connection>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let read = Arc::default();
    let stream = Counted::new(stream, &read).holding(permit);
    let (sender, connection) = http1::Builder::new()
        .max_header_size(MOST_ANSWER_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Whoever uses it hears of its end.
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    Ok(Connection {
        sender,
        upstream,
        read,
        connections: Arc::clone(connections),
        has_grown: false,
    })
}
