//! The peer of a request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;

/// The address of the peer, as an extension of requests. Servers that accept connections
/// insert it.
///
/// ```
/// use std::net::SocketAddr;
///
/// use fluxgate_tower::PeerAddr;
///
/// fn with_peer<B>(mut request: http::Request<B>, peer: SocketAddr) -> http::Request<B> {
///     request.extensions_mut().insert(PeerAddr(peer));
///     request
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

type FindPeer = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// How the layer finds the peer of a request: by a function, or in the request's extensions.
#[derive(Clone, Default)]
pub(super) struct PeerSource(Option<Arc<FindPeer>>);

impl PeerSource {
    pub(super) fn new(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(find)))
    }

    pub(super) fn peer_ip(&self, request: &Parts) -> Option<IpAddr> {
        match &self.0 {
            Some(find) => find(request),
            None => peer_in_extensions(request),
        }
    }
}

fn peer_in_extensions(request: &Parts) -> Option<IpAddr> {
    let extensions = &request.extensions;
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address.ip());
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) =
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address.ip());
    }
    None
}

impl fmt::Debug for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "PeerSource(function)",
            None => "PeerSource(extensions)",
        })
    }
}
