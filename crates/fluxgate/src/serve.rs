//! How connections are accepted, and how HTTP is served on them.

mod acceptor;
mod certificate;
mod http;
mod proxy_protocol;
mod sockets;
mod tls;

pub(crate) use acceptor::{Acceptor, MAX_CONNECTIONS};
pub(crate) use certificate::LoadedCertificate;
pub(crate) use http::{HEADER_TIMEOUT, HttpServer, PeerAddress};
pub(crate) use proxy_protocol::ProxyProtocol;
pub(crate) use sockets::listen;
pub(crate) use tls::ListenerTls;
