//! One server that requests are forwarded to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::connection_limit::ConnectionPermit;
use super::health::Health;
use super::stream::{Transport, UpstreamStream};
use crate::config::UpstreamTarget;

/// An upstream and its load and health, shared by all routes that name it.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// The index among all upstreams.
    pub(crate) number: usize,
    pub(crate) target: UpstreamTarget,
    /// Requests without a complete response.
    pub(super) outstanding: AtomicUsize,
    pub(super) health: Health,
    /// The address, if the host is one.
    address: Option<SocketAddr>,
}

impl Upstream {
    pub(crate) fn new(number: usize, target: UpstreamTarget) -> Self {
        let address = match &target {
            UpstreamTarget::Echo => None,
            UpstreamTarget::Http { host, port, .. } => {
                let ip = without_brackets(host).parse::<IpAddr>().ok();
                ip.map(|ip| SocketAddr::new(ip, *port))
            }
        };
        Self {
            number,
            target,
            outstanding: AtomicUsize::new(0),
            health: Health::default(),
            address,
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Connects, over TLS if the target says so, within `timeout`.
    pub(crate) async fn connect(
        &self,
        permit: ConnectionPermit,
        tls: Option<&Arc<ClientConfig>>,
        timeout: Duration,
    ) -> io::Result<UpstreamStream> {
        let UpstreamTarget::Http {
            tls: is_secure,
            host,
            port,
        } = &self.target
        else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let connect = async {
            let tcp = match self.address {
                Some(address) => TcpStream::connect(address).await?,
                None => TcpStream::connect((host.as_str(), *port)).await?,
            };
            // Without the option, requests are merely later.
            let _ = tcp.set_nodelay(true);
            let transport = match tls.filter(|_| *is_secure) {
                None => Transport::Tcp(tcp),
                Some(tls) => {
                    let name = without_brackets(host).to_owned();
                    let name = ServerName::try_from(name).map_err(io::Error::other)?;
                    let tls = TlsConnector::from(Arc::clone(tls));
                    Transport::Tls(Box::new(tls.connect(name, tcp).await?))
                }
            };
            Ok(UpstreamStream::new(transport, permit))
        };
        let connected = tokio::time::timeout(timeout, connect).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}
