//! A pool of connections to the service.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[cfg(feature = "remote-tls")]
use super::tls::Tls;

/// The largest body of a response.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// The most idle connections to keep.
const MAX_IDLE: usize = 64;

type Connection = SendRequest<Full<Bytes>>;

/// Connections to one service.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    authority: Authority,
    host: HeaderValue,
    /// The prefix of all paths.
    base: String,
    /// Idle connections. The last is the most recently used.
    idle: Mutex<Vec<Connection>>,
    /// Present if the address begins with `https`.
    #[cfg(feature = "remote-tls")]
    tls: Option<Tls>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("no response within the deadline")]
    Deadline,
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the connection failed: {0}")]
    Broken(hyper::Error),
    #[error("the body of the response cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the service responds with {0}")]
    Status(StatusCode),
    #[error("the service responds with an invalid decision")]
    InvalidResponse,
}

impl ConnectionPool {
    /// Creates a pool for the service at this address, or `None` if the address is invalid.
    pub(super) fn new(address: &Uri) -> Option<Self> {
        let authority = address.authority()?.clone();
        let is_https = address.scheme() == Some(&Scheme::HTTPS);
        let has_scheme = is_https || address.scheme() == Some(&Scheme::HTTP);
        let is_valid = has_scheme && address.query().is_none() && !authority.as_str().contains('@');
        is_valid.then_some(())?;
        Some(Self {
            host: HeaderValue::from_str(authority.as_str()).ok()?,
            base: address.path().trim_end_matches('/').to_owned(),
            authority,
            idle: Mutex::default(),
            #[cfg(feature = "remote-tls")]
            tls: is_https.then(Tls::of_system),
        })
    }

    /// Returns a pool without connections that uses this TLS, if the service does.
    #[cfg(feature = "remote-tls")]
    pub(super) fn with_tls(&self, tls: Tls) -> Self {
        Self {
            authority: self.authority.clone(),
            host: self.host.clone(),
            base: self.base.clone(),
            idle: Mutex::default(),
            tls: self.tls.is_some().then_some(tls),
        }
    }

    /// Posts JSON and returns the response if it is a success. A call that fails after it was
    /// sent is not repeated.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Response<Bytes>, CallError> {
        let is_sent = AtomicBool::new(false);
        let response = timeout(deadline, self.call(path, body, &is_sent));
        response.await.unwrap_or(Err(CallError::Deadline))
    }

    /// Posts JSON like [`Self::post`], without a deadline. Sets whether the request may have left
    /// this process.
    pub(super) async fn call(
        &self,
        path: &str,
        body: Bytes,
        is_sent: &AtomicBool,
    ) -> Result<Response<Bytes>, CallError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        // Both parts are valid paths.
        *request.uri_mut() = Uri::try_from(format!("{}{path}", self.base)).unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.send(request, is_sent).await
    }

    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        is_sent: &AtomicBool,
    ) -> Result<Response<Bytes>, CallError> {
        while let Some(mut connection) = self.take_idle() {
            // The connection was returned as soon as its last response was read.
            if connection.ready().await.is_err() {
                continue;
            }
            is_sent.store(true, Ordering::Relaxed);
            match connection.try_send_request(request).await {
                Ok(response) => return self.finish(connection, response).await,
                Err(mut error) => match error.take_message() {
                    // It was not sent: the service had closed the connection.
                    Some(unsent) => request = unsent,
                    None => return Err(CallError::Broken(error.into_error())),
                },
            }
        }
        is_sent.store(false, Ordering::Relaxed);
        let mut connection = self.connect().await?;
        is_sent.store(true, Ordering::Relaxed);
        let response = connection.send_request(request).await;
        let response = response.map_err(CallError::Broken)?;
        self.finish(connection, response).await
    }

    /// Reads the whole response and returns the connection to the pool.
    async fn finish(
        &self,
        connection: Connection,
        response: Response<hyper::body::Incoming>,
    ) -> Result<Response<Bytes>, CallError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
        let body = body.map_err(CallError::Body)?.to_bytes();
        self.put_idle(connection);
        if head.status.is_success() {
            Ok(Response::from_parts(head, body))
        } else {
            Err(CallError::Status(head.status))
        }
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let host = self.authority.host();
        // `host` keeps the brackets of an IPv6 address.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let default_port = if self.is_https() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(CallError::Connect)?;
        // Without it, calls are only slower.
        let _ = stream.set_nodelay(true);
        #[cfg(feature = "remote-tls")]
        if let Some(tls) = &self.tls {
            let stream = tls.connect(host, stream).await;
            return Self::open(stream.map_err(CallError::Connect)?).await;
        }
        Self::open(stream).await
    }

    #[cfg(feature = "remote-tls")]
    fn is_https(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "remote-tls"))]
    fn is_https(&self) -> bool {
        false
    }

    /// Starts HTTP on a new connection.
    async fn open<S>(stream: S) -> Result<Connection, CallError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(CallError::Broken)?;
        // The task ends when the sender is dropped or the service closes the connection.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    fn put_idle(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
    }
}
