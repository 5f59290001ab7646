//! The connection to a running service.

use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fluxgate_tower::internals::client_config;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::cli::{Exit, Failure};

/// The API of the demo, and the default of the documentation.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";
/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The service that a command calls.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArguments {
    /// The address of the service's API
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    server: String,
    /// A file with the token for the service, if it needs one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The service that a command calls, if it calls one.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OptionalServer {
    /// Send the request to the service at this address instead; prints JSON
    #[arg(long, value_name = "URL", conflicts_with = "rules")]
    server: Option<String>,
    /// A file with the token for the service, if it needs one
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
}

impl OptionalServer {
    /// Returns the service, or the default one.
    pub(crate) fn required(&self) -> ServerArguments {
        ServerArguments {
            server: self.server.clone().unwrap_or(DEFAULT_SERVER.into()),
            token_file: self.token_file.clone(),
        }
    }
}

/// A service.
#[derive(Debug)]
pub(crate) struct Server {
    /// As it was given.
    name: String,
    authority: Authority,
    is_tls: bool,
    authorization: Option<HeaderValue>,
}

impl ServerArguments {
    /// Returns the service, without connecting to it.
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        let name = self.server.trim_end_matches('/').to_owned();
        let invalid = || {
            let message = format!("--server: {name:?} is not an address such as {DEFAULT_SERVER}");
            Failure::new(Exit::Data, message)
        };
        let uri: Uri = name.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?.clone();
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let has_path = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        let is_known = is_tls || uri.scheme() == Some(&Scheme::HTTP);
        if has_path || !is_known || authority.host().is_empty() || authority.as_str().contains('@')
        {
            return Err(invalid());
        }
        let authorization = self.token_file.as_ref().map(|path| {
            let unreadable = |error| format!("--token-file: {}: {error}", path.display());
            let token = std::fs::read_to_string(path);
            let token = token.map_err(|error| Failure::new(Exit::NoInput, unreadable(error)))?;
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut value = value.map_err(|_| {
                let message = format!("--token-file: {}: not a token", path.display());
                Failure::new(Exit::Data, message)
            })?;
            value.set_sensitive(true);
            Ok::<_, Failure>(value)
        });
        Ok(Server {
            authorization: authorization.transpose()?,
            name,
            authority,
            is_tls,
        })
    }
}

impl Server {
    /// Returns its address, as it was given.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request and returns the JSON of a good answer.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Value, Failure> {
        let call = async {
            let response = self.send(method, path, body).await?;
            let body = response.into_body().collect().await;
            let body = body.map_err(|error| self.broken(error))?.to_bytes();
            serde_json::from_slice(&body).map_err(|error| self.broken(error))
        };
        let answer = tokio::time::timeout(DEADLINE, call).await;
        answer.unwrap_or_else(|_| Err(self.broken("no answer in time")))
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn events(&self, path: &str) -> Result<Events, Failure> {
        let opened = tokio::time::timeout(DEADLINE, self.send(Method::GET, path, None)).await;
        let response = opened.unwrap_or_else(|_| Err(self.broken("no answer in time")))?;
        Ok(Events {
            body: response.into_body(),
            rest: BytesMut::new(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>, Failure> {
        let host = self.authority.host();
        // `host` keeps the brackets of an IPv6 address.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let default_port = if self.is_tls { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(|error| self.broken(error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.authority.as_str())
            .header(ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let request = request.body(Full::<Bytes>::from(body.unwrap_or_default()));
        let request = request.map_err(|error| self.broken(error))?;
        let response = match self.is_tls {
            false => self.exchange(stream, request).await?,
            true => {
                let config = client_config().map_err(|error| self.broken(error))?;
                let name = ServerName::try_from(host.to_owned());
                let name = name.map_err(|error| self.broken(error))?;
                let stream = TlsConnector::from(config).connect(name, stream).await;
                let stream = stream.map_err(|error| self.broken(error))?;
                self.exchange(stream, request).await?
            }
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Err(self.refused(status.as_u16(), &body))
    }

    async fn exchange<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(|error| self.broken(error))?;
        // The task ends when the answer has been read or is dropped.
        tokio::spawn(connection);
        let response = sender.send_request(request).await;
        response.map_err(|error| self.broken(error))
    }

    fn broken(&self, error: impl std::fmt::Display) -> Failure {
        Failure::new(Exit::Unavailable, format!("{}: {error}", self.name))
    }

    /// Returns the failure for an error response.
    fn refused(&self, status: u16, body: &[u8]) -> Failure {
        let problem: Option<Value> = serde_json::from_slice(body).ok();
        let detail = problem.as_ref().and_then(|it| it["detail"].as_str());
        let detail = detail.map_or_else(|| String::from_utf8_lossy(body).into(), str::to_owned);
        let exit = match status {
            401 | 403 => Exit::NoPermission,
            429 => Exit::Unavailable,
            400..500 => Exit::Data,
            _ => Exit::Unavailable,
        };
        Failure::new(exit, format!("{}: {status}: {detail}", self.name))
    }
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    rest: BytesMut,
}

impl Events {
    /// Returns the data of the next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
                let event = self.rest.split_to(end + 2);
                let event = event.strip_prefix(b"data: ").unwrap_or(&event);
                return serde_json::from_slice(event.trim_ascii_end()).ok();
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
