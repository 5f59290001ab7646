//! A request as a transport has read it.

use std::net::SocketAddr;
use std::sync::Arc;

use fluxgate_core::path::RequestPath;
use fluxgate_http::IncomingRequest;

/// A request as a transport has read it.
#[derive(Debug)]
pub(crate) struct ReceivedRequest<'a, H> {
    pub(crate) head: &'a H,
    pub(crate) path: &'a RequestPath<'a>,
    /// The host, perhaps with a port; empty if it is unknown.
    pub(crate) host: &'a str,
    /// The options of `Connection`.
    pub(crate) connection: &'a [&'a [u8]],
    /// The declared length of the body.
    pub(crate) body_length: Option<u64>,
    /// Whether the connection may be upgraded to another protocol.
    pub(crate) upgrades: bool,
    pub(crate) client: &'a ConnectionInfo,
}

impl<'a, H> ReceivedRequest<'a, H> {
    /// Returns the request as filters see it.
    pub(crate) fn incoming(&self) -> IncomingRequest<'a, H> {
        IncomingRequest {
            head: self.head,
            path: self.path,
            peer: Some(self.client.peer.ip()),
        }
    }
}

/// The connection that a request arrived on.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) peer: SocketAddr,
    /// The address of the peer as text, with which each of its requests is forwarded.
    pub(crate) peer_text: Arc<str>,
    /// The port of the listener.
    pub(crate) port: u16,
    /// Whether the connection is over TLS.
    pub(crate) is_secure: bool,
}

impl ConnectionInfo {
    pub(crate) fn new(peer: SocketAddr, port: u16, is_secure: bool) -> Self {
        Self {
            peer,
            peer_text: peer.ip().to_canonical().to_string().into(),
            port,
            is_secure,
        }
    }

    /// Returns the scheme of its requests.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }
}
