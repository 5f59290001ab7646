//! Fetches a key set over HTTP or HTTPS.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::error::JwtError;
use crate::trust::client_config;

/// The largest key set.
const MAX_BYTES: usize = 256 * 1024;
/// How long a fetch may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The address of a key set.
#[derive(Clone)]
pub(super) struct Endpoint {
    uri: Uri,
    authority: Authority,
    host: HeaderValue,
    tls: Option<TlsConnector>,
}

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("no response within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the connection failed: {0}")]
    Broken(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("the response has status {0}, not 200")]
    Status(StatusCode),
    #[error("the body of the response cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

impl Endpoint {
    /// Parses an address. For `https` the certificate authorities of the system are trusted, or
    /// those of the file that `SSL_CERT_FILE` names.
    pub(super) fn new(address: &str) -> Result<Self, JwtError> {
        let invalid = || JwtError::Address(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?.clone();
        // Logs would show a password.
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(invalid());
        }
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Some(TlsConnector::from(client_config()?)),
            Some(scheme) if *scheme == Scheme::HTTP => None,
            _ => return Err(invalid()),
        };
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| invalid())?;
        Ok(Self {
            uri,
            authority,
            host,
            tls,
        })
    }

    /// Fetches the key set on a new connection: fetches are too far apart to keep one open.
    pub(super) async fn fetch(&self) -> Result<Bytes, FetchError> {
        let fetched = tokio::time::timeout(DEADLINE, self.connect_and_get()).await;
        fetched.unwrap_or(Err(FetchError::Deadline))
    }

    async fn connect_and_get(&self) -> Result<Bytes, FetchError> {
        let host = self.authority.host();
        // `host` keeps the brackets of an IPv6 address.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let default_port = match self.tls {
            Some(_) => 443,
            None => 80,
        };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let stream = TcpStream::connect((host, port)).await?;
        match &self.tls {
            None => self.get(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
                self.get(tls.connect(name, stream).await?).await
            }
        }
    }

    async fn get<S>(&self, stream: S) -> Result<Bytes, FetchError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The task ends when the sender is dropped or the server closes the connection.
        tokio::spawn(connection);
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(HOST, self.host.clone())
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        // Redirects are not followed, because they could lead to any server.
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect();
        let body = body.await.map_err(FetchError::Body)?;
        Ok(body.to_bytes())
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({})", self.uri)
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.uri)
    }
}
