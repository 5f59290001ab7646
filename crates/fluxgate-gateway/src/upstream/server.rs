//! One server that requests are forwarded to, and the connections to it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

use super::connection_limit::ConnectionPermit;
use super::route_upstream::{RouteUpstream, ServerState, UpstreamStatus};
use super::tls;
use crate::config::{UpstreamScheme, UpstreamTarget};
use crate::timeouts::Deadline;

/// How requests get to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The gateway answers itself.
    Echo,
    /// Over HTTP/1.1.
    Http1,
    /// Over HTTP/2.
    Http2,
    /// Over either, as the server chooses for each connection over TLS.
    Negotiated,
}

/// An upstream of a route.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// The number of the server. Routes with the same target share it, and with it idle
    /// connections.
    pub(crate) number: usize,
    pub(crate) target: UpstreamTarget,
    pub(crate) protocol: Protocol,
    /// Its load and health, which routes with the same target share.
    pub(super) server: Arc<ServerState>,
    /// Its share of the requests of the route.
    pub(super) weight: u32,
    /// What the route knows of it.
    pub(crate) of_route: Arc<RouteUpstream>,
    /// The address, if the host is one.
    address: Option<SocketAddr>,
}

impl Upstream {
    pub(super) fn new(
        target: UpstreamTarget,
        server: Arc<ServerState>,
        of_route: Arc<RouteUpstream>,
    ) -> Self {
        let address = match &target {
            UpstreamTarget::Echo => None,
            UpstreamTarget::Http { host, port, .. } => {
                let ip = without_brackets(host).parse::<IpAddr>().ok();
                ip.map(|ip| SocketAddr::new(ip, *port))
            }
        };
        let protocol = match &target {
            UpstreamTarget::Echo => Protocol::Echo,
            UpstreamTarget::Http { scheme, .. } => match scheme {
                UpstreamScheme::Http => Protocol::Http1,
                UpstreamScheme::H2c => Protocol::Http2,
                UpstreamScheme::Https => Protocol::Negotiated,
            },
        };
        Self {
            number: server.number,
            target,
            protocol,
            server,
            weight: 1,
            of_route,
            address,
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.server.outstanding.load(Ordering::Relaxed)
    }

    /// Returns whether it has fewer outstanding requests for its weight.
    pub(super) fn is_less_loaded_than(&self, other: &Self) -> bool {
        let load = |this: &Self, weight: u32| this.outstanding() as u128 * u128::from(weight);
        load(self, other.weight) < load(other, self.weight)
    }

    /// Records that the active check fails, and why.
    pub(crate) fn check_failed(&self, why: String) {
        self.of_route.check_failed(&self.server, why);
    }

    /// Records that the active check succeeds.
    pub(crate) fn check_succeeded(&self) {
        self.of_route.check_succeeded(&self.server);
    }

    /// Records that there is no active check any more.
    pub(crate) fn check_removed(&self) {
        self.of_route.check_removed(&self.server);
    }

    /// Keeps the counters of this moment, for those of the last minute.
    pub(crate) fn sample(&self, now: quanta::Instant) {
        self.of_route.sample(now);
    }

    /// Returns how it is doing.
    pub(crate) fn status(&self, now: quanta::Instant) -> UpstreamStatus {
        self.of_route
            .status(&self.server, self.target.to_string(), now)
    }

    /// Returns whether the server chose HTTP/1.1 when it last could.
    pub(crate) fn chose_http1(&self) -> bool {
        self.server.chose_http1.load(Ordering::Relaxed)
    }

    /// Records which protocol the server chose.
    pub(crate) fn record_choice(&self, stream: &UpstreamStream) {
        let is_http1 = !stream.chose_http2();
        if self.chose_http1() != is_http1 {
            self.server.chose_http1.store(is_http1, Ordering::Relaxed);
        }
    }

    /// Connects within `timeout`, over TLS if `tls` says how.
    pub(crate) async fn connect(
        &self,
        permit: ConnectionPermit,
        tls: Option<&Arc<ClientConfig>>,
        timeout: Duration,
    ) -> io::Result<UpstreamStream> {
        let UpstreamTarget::Http { host, port, .. } = &self.target else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let connect = async {
            let tcp = match self.address {
                Some(address) => TcpStream::connect(address).await?,
                None => TcpStream::connect((host.as_str(), *port)).await?,
            };
            // Without the option, requests are merely later.
            let _ = tcp.set_nodelay(true);
            let transport = match tls {
                None => Transport::Left(tcp),
                Some(tls) => {
                    let name = without_brackets(host).to_owned();
                    let name = ServerName::try_from(name).map_err(io::Error::other)?;
                    let tls = TlsConnector::from(Arc::clone(tls));
                    Either::Right(Box::new(tls.connect(name, tcp).await?))
                }
            };
            Ok(UpstreamStream {
                transport,
                deadline: Deadline::default(),
                _permit: permit,
            })
        };
        let connected = tokio::time::timeout(timeout, connect).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// A connection to an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamStream {
    transport: Transport,
    /// Bounds what the connection is waited for. It belongs to the connection so that its
    /// timer serves many requests.
    pub(crate) deadline: Deadline,
    /// Counts the connection for as long as it is open.
    _permit: ConnectionPermit,
}

/// TCP, or TLS over it.
type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

impl UpstreamStream {
    /// Returns whether an idle connection can carry another request: the upstream has neither
    /// closed it nor sent anything. It queries the kernel because the runtime may not have
    /// noticed yet, and a request that is sent over a closed connection cannot be repeated.
    pub(super) fn is_open(&mut self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let tcp = match &self.transport {
            Either::Left(tcp) => tcp,
            Either::Right(tls) => tls.get_ref().0,
        };
        let peeked = SockRef::from(tcp).peek(&mut byte);
        if peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            return true;
        }
        // Session tickets may arrive at any time.
        let Either::Right(tls) = &mut self.transport else {
            return false;
        };
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(tls).poll_read(&mut cx, &mut ReadBuf::new(&mut [0]));
        read.is_pending()
    }

    /// Returns whether the server chose HTTP/2 in the handshake of TLS.
    pub(crate) fn chose_http2(&self) -> bool {
        match &self.transport {
            Either::Left(_) => false,
            Either::Right(tls) => tls.get_ref().1.alpn_protocol() == Some(tls::HTTP2),
        }
    }

    /// Reads into `buffer`; returns how much was read.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let polled = Pin::new(self).poll_read(cx, &mut buffer);
        polled.map_ok(|()| buffer.filled().len())
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_read(cx, buffer)
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().transport).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Either::Left(tcp) => Pin::new(tcp).poll_write_vectored(cx, pieces),
            Either::Right(tls) => Pin::new(tls).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Either::Left(tcp) => tcp.is_write_vectored(),
            Either::Right(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(cx)
    }
}
