//! One server that requests are forwarded to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;

use super::health::Health;
use super::upstream_connections::ConnectionPermit;
use crate::config;

/// A server, and how it fares.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Unlike any other's; they count from 0.
    pub(crate) number: usize,
    /// What the config says.
    pub(crate) target: config::Upstream,
    /// Requests that have no whole answer yet.
    pub(super) outstanding: AtomicUsize,
    pub(super) health: Health,
    /// Where it is, if its name is an address.
    address: Option<SocketAddr>,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct UpstreamStream {
    pub(super) tcp: TcpStream,
    /// Counts it for as long as it is open.
    pub(super) permit: ConnectionPermit,
}

impl Upstream {
    pub(super) fn new(number: usize, target: config::Upstream) -> Self {
        let address = match &target {
            config::Upstream::Echo => None,
            config::Upstream::Http { host, port, .. } => {
                let ip = host.trim_start_matches('[').trim_end_matches(']');
                let ip = ip.parse::<IpAddr>().ok();
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

    /// Connects, within so long for all its addresses together.
    pub(super) async fn connect(
        &self,
        permit: ConnectionPermit,
        within: Duration,
    ) -> io::Result<UpstreamStream> {
        let connected = tokio::time::timeout(within, self.connect_to_any()).await;
        let tcp = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        // If it cannot be set, requests are merely later.
        let _ = tcp.set_nodelay(true);
        Ok(UpstreamStream { tcp, permit })
    }

    async fn connect_to_any(&self) -> io::Result<TcpStream> {
        let config::Upstream::Http { host, port, .. } = &self.target else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if let Some(address) = self.address {
            return TcpStream::connect(address).await;
        }
        let mut last = None;
        for address in tokio::net::lookup_host((host.as_str(), *port)).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }
}
