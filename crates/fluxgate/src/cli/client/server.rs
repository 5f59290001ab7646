//! The connection to a running service.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fluxgate_core::regular_file;
use fluxgate_http::{ClientCertificates, Endpoint, EndpointError};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
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
/// The id of the last event that a client has of a stream.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The service that a command calls.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArguments {
    // The options are global, so that they may stand before and after a subcommand.
    /// The address of the service's API
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER, global = true)]
    server: String,
    /// A file with the token for the service, if it needs one
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArguments,
}

/// The certificates for a service with TLS.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsArguments {
    /// A file with the certificate authorities to trust, in PEM (default: the system's)
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// A file with the client certificate, in PEM, if the service needs one
    #[arg(long, value_name = "FILE", requires = "key", global = true)]
    cert: Option<PathBuf>,
    /// A file with the key of the client certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert", global = true)]
    key: Option<PathBuf>,
}

/// The service that a command calls, if it calls one.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OptionalServer {
    /// Send the request to the service at this address instead
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
    /// Returns whether they include a client certificate.
    pub(crate) fn has_client_certificate(&self) -> bool {
        self.cert.is_some()
    }

    pub(crate) fn read(&self) -> Result<TlsFiles, Failure> {
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
pub(crate) struct TlsFiles {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl TlsFiles {
    pub(crate) fn certificates(&self) -> ClientCertificates<'_> {
        ClientCertificates {
            ca: self.ca.as_deref(),
            server: None,
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

/// A response of any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The `ETag`, in its quotes.
    pub(crate) etag: Option<String>,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Returns the `detail` of a problem, or the whole body if it is something else, and the
    /// faults that a problem lists.
    pub(crate) fn detail(&self) -> String {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let mut detail = match problem["detail"].as_str() {
            Some(detail) => detail.to_owned(),
            None => String::from_utf8_lossy(&self.body).into(),
        };
        for fault in problem["faults"].as_array().into_iter().flatten() {
            let (line, column) = (&fault["line"], &fault["column"]);
            let message = fault["message"].as_str().unwrap_or_default();
            detail += &format!("\n  {line}:{column}: {message}");
        }
        detail
    }
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
        let files = self.tls.read()?;
        let server = Server::new(&self.server, files.certificates())?;
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
            ..server
        })
    }
}

impl Server {
    /// Returns a service that needs no token, without connecting to it.
    pub(crate) fn new(url: &str, certificates: ClientCertificates<'_>) -> Result<Self, Failure> {
        let name = url.trim_end_matches('/').to_owned();
        let invalid = || {
            let message = format!("--server: {name:?} is not an address such as {DEFAULT_SERVER}");
            Failure::new(Exit::Data, message)
        };
        let endpoint = Endpoint::new(&name, certificates).map_err(|error| match error {
            EndpointError::Trust(error) => Failure::new(Exit::NoInput, error),
            _ => invalid(),
        })?;
        if endpoint.path_and_query() != "/" {
            return Err(invalid());
        }
        Ok(Self {
            authorization: None,
            endpoint,
            name,
        })
    }

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
        let answer = self.exchange(method, path, &[], body).await?;
        if answer.status.is_success() {
            self.json_of(&answer)
        } else {
            Err(self.refused(&answer))
        }
    }

    /// Sends a request and returns the response, which may be an error.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Failure> {
        let call = async {
            let response = self.send(method, path, headers, body).await?;
            self.collect(response, MAX_ANSWER_BYTES).await
        };
        let answer = tokio::time::timeout(DEADLINE, call).await;
        answer.unwrap_or_else(|_| Err(self.broken("no answer in time")))
    }

    /// Returns the JSON of a response.
    pub(crate) fn json_of(&self, answer: &Answer) -> Result<Value, Failure> {
        serde_json::from_slice(&answer.body).map_err(|error| self.broken(error))
    }

    /// Returns the failure for an error response.
    pub(crate) fn refused(&self, answer: &Answer) -> Failure {
        let status = answer.status.as_u16();
        let exit = match status {
            401 | 403 => Exit::NoPermission,
            412 => Exit::TryAgain,
            429 => Exit::Unavailable,
            400..500 => Exit::Data,
            _ => Exit::Unavailable,
        };
        let detail = answer.detail();
        Failure::new(exit, format!("{}: {status}: {detail}", self.name))
    }

    /// Opens a stream of server-sent events, which begins after the event `last` if there is one.
    pub(crate) async fn events(&self, path: &str, last: Option<&str>) -> Result<Events, Failure> {
        let mut headers = vec![(ACCEPT, "text/event-stream")];
        headers.extend(last.map(|last| (LAST_EVENT_ID, last)));
        let opening = self.send(Method::GET, path, &headers, None);
        let opened = tokio::time::timeout(DEADLINE, opening).await;
        let response = opened.unwrap_or_else(|_| Err(self.broken("no answer in time")))?;
        if !response.status().is_success() {
            let answer = self.collect(response, MAX_PROBLEM_BYTES).await?;
            return Err(self.refused(&answer));
        }
        Ok(Events {
            body: response.into_body(),
            rest: BytesMut::new(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name == ACCEPT) {
            request = request.header(ACCEPT, "application/json");
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request
            .body(Full::<Bytes>::from(body.unwrap_or_default()))
            .map_err(|error| self.broken(error))?;
        let response = self.endpoint.send(request).await;
        response.map_err(|error| self.broken(error))
    }

    async fn collect(
        &self,
        response: Response<Incoming>,
        max_bytes: usize,
    ) -> Result<Answer, Failure> {
        let (head, body) = response.into_parts();
        let etag = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        let body = Limited::new(body, max_bytes).collect().await;
        Ok(Answer {
            status: head.status,
            etag: etag.map(str::to_owned),
            body: body.map_err(|error| self.broken(error))?.to_bytes(),
        })
    }

    fn broken(&self, error: impl std::fmt::Display) -> Failure {
        Failure::new(Exit::Unavailable, format!("{}: {error}", self.name))
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
                let event = self.rest.split_to(end + 2).freeze();
                let mut lines = event[..].split(|byte| *byte == b'\n');
                // Comments, which keep a connection alive, have no data.
                match lines.find_map(|line| line.strip_prefix(b"data: ")) {
                    Some(data) => return serde_json::from_slice(data).ok(),
                    None => continue,
                }
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
