//! The connection to a running service.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fluxgate_core::regular_file;
use fluxgate_http::{ClientCertificates, client_config_with};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::cli::{Exit, Failure};

/// The API of the demo, and the default of the documentation.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";
/// More than any token or certificate needs.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// More than any response has: 16 MiB of rules, in JSON.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// More than any problem document has.
const MAX_PROBLEM_BYTES: usize = 1 << 20;
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
    #[command(flatten)]
    tls: TlsArguments,
}

/// The certificates for a service with TLS.
#[derive(Clone, Debug, Default, clap::Args)]
struct TlsArguments {
    /// A file with the certificate authorities to trust, in PEM (default: the system's)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A file with the client certificate, in PEM, if the service needs one
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// A file with the key of the client certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
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
    #[command(flatten)]
    tls: TlsArguments,
}

impl OptionalServer {
    /// Returns the service, or the default.
    pub(crate) fn required(&self) -> ServerArguments {
        ServerArguments {
            server: self.server.clone().unwrap_or(DEFAULT_SERVER.into()),
            token_file: self.token_file.clone(),
            tls: self.tls.clone(),
        }
    }
}

impl TlsArguments {
    /// Reads the files.
    fn config(&self) -> Result<Arc<ClientConfig>, Failure> {
        let read = |flag: &str, path: Option<&PathBuf>| match path {
            None => Ok(Vec::new()),
            Some(path) => read_file(flag, path),
        };
        let [ca, cert, key] = [
            read("--ca", self.ca.as_ref())?,
            read("--cert", self.cert.as_ref())?,
            read("--key", self.key.as_ref())?,
        ];
        let config = client_config_with(ClientCertificates {
            ca: self.ca.is_some().then_some(&ca),
            client: self.cert.is_some().then_some((&cert, &key)),
        });
        config.map_err(|error| Failure::new(Exit::NoInput, error))
    }
}

/// Reads a small file, which may be a pipe (`<(…)`).
fn read_file(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    File::open(path)
        .and_then(|file| regular_file::read_bounded(file, MAX_FILE_BYTES))
        .map_err(|error| {
            let message = format!("{flag}: {}: {error}", path.display());
            Failure::new(Exit::NoInput, message)
        })
}

/// A service.
#[derive(Debug)]
pub(crate) struct Server {
    /// The address as it was given.
    name: String,
    authority: Authority,
    /// The TLS configuration, if the service uses TLS.
    tls: Option<Arc<ClientConfig>>,
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
            let token = read_file("--token-file", path)?;
            let value = [b"Bearer ", token.trim_ascii()].concat();
            let value = HeaderValue::from_bytes(&value);
            let mut value = value.map_err(|_| {
                let message = format!("--token-file: {}: not a token", path.display());
                Failure::new(Exit::Data, message)
            })?;
            value.set_sensitive(true);
            Ok::<_, Failure>(value)
        });
        Ok(Server {
            authorization: authorization.transpose()?,
            tls: is_tls.then(|| self.tls.config()).transpose()?,
            name,
            authority,
        })
    }
}

impl Server {
    /// Returns its address, as it was given.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request and returns the JSON of a successful response.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Value, Failure> {
        let call = async {
            let response = self.send(method, path, body).await?;
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
                .collect()
                .await
                .map_err(|error| self.broken(error))?
                .to_bytes();
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
        let default_port = if self.tls.is_some() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let stream = TcpStream::connect((host, port))
            .await
            .map_err(|error| self.broken(error))?;
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
        let request = request
            .body(Full::<Bytes>::from(body.unwrap_or_default()))
            .map_err(|error| self.broken(error))?;
        let response = match &self.tls {
            None => self.exchange(stream, request).await?,
            Some(config) => {
                let name =
                    ServerName::try_from(host.to_owned()).map_err(|error| self.broken(error))?;
                let stream = TlsConnector::from(Arc::clone(config))
                    .connect(name, stream)
                    .await
                    .map_err(|error| self.broken(error))?;
                self.exchange(stream, request).await?
            }
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_PROBLEM_BYTES)
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
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
        let detail = problem
            .as_ref()
            .and_then(|it| it["detail"].as_str())
            .map_or_else(|| String::from_utf8_lossy(body).into(), str::to_owned);
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
            if self.rest.len() > MAX_ANSWER_BYTES {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
