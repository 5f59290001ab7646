//! How connections are accepted, and how HTTP is served on them.

mod acceptor;
mod http;
mod sockets;

pub(crate) use acceptor::{Acceptor, MAX_CONNECTIONS};
pub(crate) use http::{HEADER_TIMEOUT, HttpServer, PeerAddress};
pub(crate) use sockets::listen;
