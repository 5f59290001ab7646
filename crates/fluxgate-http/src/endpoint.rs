//! A server that this process calls now and then.

use std::fmt;
use std::io;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::trust::{ClientCertificates, TrustError, client_config_with};

/// An `http` or `https` address. Each request has a connection of its own: requests are too
/// far apart to keep one open.
#[derive(Clone)]
pub struct Endpoint {
    uri: Uri,
    authority: Authority,
    /// The value of the `Host` header.
    host: HeaderValue,
    tls: Option<TlsConnector>,
}

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is not an `http` or `https` address, or it has a user name.
    #[error("not an address such as https://example.com/path")]
    Address,
    /// The certificates cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no connection.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    /// The connection ended, or the response is not HTTP/1.1.
    #[error("the connection failed: {0}")]
    Connection(#[from] hyper::Error),
}

impl Endpoint {
    /// Parses an address. `certificates` are for `https` only.
    pub fn new(address: &str, certificates: ClientCertificates<'_>) -> Result<Self, EndpointError> {
        let uri: Uri = address.parse().map_err(|_| EndpointError::Address)?;
        let authority = uri.authority().ok_or(EndpointError::Address)?.clone();
        // Logs would show a password.
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(EndpointError::Address);
        }
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Some(client_config_with(certificates)?),
            Some(scheme) if *scheme == Scheme::HTTP => None,
            _ => return Err(EndpointError::Address),
        };
        let host = HeaderValue::from_str(authority.as_str());
        Ok(Self {
            host: host.map_err(|_| EndpointError::Address)?,
            uri,
            authority,
            tls: tls.map(TlsConnector::from),
        })
    }

    /// Returns the path and the query of the address.
    pub fn path_and_query(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }

    /// Sends a request, whose URI is a path, and returns the response. Redirects are not
    /// followed: they could lead to any server. Sets no deadline.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, CallError> {
        request.headers_mut().insert(HOST, self.host.clone());
        // `host` keeps the brackets of an IPv6 address.
        let host = self.authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let default_port = if self.tls.is_some() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let stream = TcpStream::connect((host, port)).await?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                exchange(tls.connect(name, stream).await?, request).await
            }
        }
    }
}

async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // The task ends when the response has been read or is dropped.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uri)
    }
}
