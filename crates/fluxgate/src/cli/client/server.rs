//! The connection to a running service.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fluxgate_core::regular_file;
use fluxgate_http::{ClientCertificates, Endpoint, EndpointError};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;

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
    fn read(&self) -> Result<TlsFiles, Failure> {
        let read = |flag: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| read_file(flag, path)).transpose()
        };
        Ok(TlsFiles {
            ca: read("--ca", &self.ca)?,
            cert: read("--cert", &self.cert)?,
            key: read("--key", &self.key)?,
        })
    }
}

/// The content of the files that [`TlsArguments`] names.
struct TlsFiles {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl TlsFiles {
    fn certificates(&self) -> ClientCertificates<'_> {
        ClientCertificates {
            ca: self.ca.as_deref(),
            client: self.cert.as_deref().zip(self.key.as_deref()),
        }
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
    endpoint: Endpoint,
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
        let files = self.tls.read()?;
        let endpoint = Endpoint::new(&name, files.certificates()).map_err(|error| match error {
            EndpointError::Trust(error) => Failure::new(Exit::NoInput, error),
            _ => invalid(),
        })?;
        if endpoint.path_and_query() != "/" {
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
            endpoint,
            name,
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
        let mut request = Request::builder()
            .method(method)
            .uri(path)
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
        let response = self.endpoint.send(request).await;
        let response = response.map_err(|error| self.broken(error))?;
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
