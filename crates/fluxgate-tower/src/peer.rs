//! Who is at the other end of the connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;

/// The address at the other end of the connection, as an extension of requests.
/// Whoever accepts connections puts it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

type Find = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// How the peer of a request is found.
#[derive(Clone, Default)]
pub(crate) struct PeerSource(Option<Arc<Find>>);

impl PeerSource {
    pub(crate) fn by(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(find)))
    }

    pub(crate) fn peer_of(&self, request: &Parts) -> Option<IpAddr> {
        match &self.0 {
            Some(find) => find(request),
            None => in_extensions(request),
        }
    }
}

fn in_extensions(request: &Parts) -> Option<IpAddr> {
    if let Some(PeerAddr(address)) = request.extensions.get() {
        return Some(address.ip());
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) = request
        .extensions
        .get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address.ip());
    }
    None
}

impl fmt::Debug for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "PeerSource(given)",
            None => "PeerSource(extensions)",
        })
    }
}
