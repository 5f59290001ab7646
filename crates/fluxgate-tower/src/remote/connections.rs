//! Connections to the service, which are kept and used again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The most that an answer may hold.
const MOST_ANSWER_BYTES: usize = 64 * 1024;
/// The most connections that are kept while nobody needs them.
const MOST_IDLE: usize = 64;
const DEFAULT_PORT: u16 = 80;

type Connection = SendRequest<Full<Bytes>>;

/// Connections to one service.
#[derive(Debug)]
pub(super) struct Connections {
    authority: Authority,
    host: HeaderValue,
    /// What the paths begin with.
    base: String,
    /// Those that nobody uses; the last used is the last.
    idle: Mutex<Vec<Connection>>,
}

/// A call to the service.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) path: &'static str,
    pub(super) token: Option<HeaderValue>,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("no answer within the deadline")]
    Deadline,
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    #[error("the connection broke: {0}")]
    Broken(hyper::Error),
    #[error("the body of the answer did not come: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the service answers {0}")]
    Status(StatusCode),
    #[error("the service gives an answer that cannot be one")]
    BadAnswer,
}

impl Connections {
    /// Connections to the service at this address; `None` if it is none.
    pub(super) fn to(address: &Uri) -> Option<Self> {
        let authority = address.authority()?.clone();
        let is_plain = address.scheme() == Some(&Scheme::HTTP)
            && address.query().is_none()
            && !authority.as_str().contains('@');
        is_plain.then_some(())?;
        Some(Self {
            host: HeaderValue::from_str(authority.as_str()).ok()?,
            base: address.path().trim_end_matches('/').to_owned(),
            authority,
            idle: Mutex::default(),
        })
    }

    /// The answer, if it is one of success. What is broken off, or fails once it
    /// was sent, is not sent again.
    pub(super) async fn exchange(
        &self,
        exchange: Exchange,
        deadline: Duration,
    ) -> Result<Response<Bytes>, ExchangeError> {
        let answer = timeout(deadline, self.send(self.request(exchange)));
        answer.await.unwrap_or(Err(ExchangeError::Deadline))
    }

    fn request(&self, exchange: Exchange) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(exchange.body));
        *request.method_mut() = Method::POST;
        let path = format!("{}{}", self.base, exchange.path);
        // The base is the path of an address, and the rest is ours.
        *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = exchange.token {
            headers.insert(AUTHORIZATION, token);
        }
        request
    }

    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, ExchangeError> {
        while let Some(mut connection) = self.take_idle() {
            // It was given back as soon as its answer was read.
            if connection.ready().await.is_err() {
                continue;
            }
            match connection.try_send_request(request).await {
                Ok(response) => return self.finish(connection, response).await,
                Err(mut error) => match error.take_message() {
                    // It never left: the service had closed the connection.
                    Some(unsent) => request = unsent,
                    None => return Err(ExchangeError::Broken(error.into_error())),
                },
            }
        }
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await;
        let response = response.map_err(ExchangeError::Broken)?;
        self.finish(connection, response).await
    }

    /// Reads the answer to its end; then the connection may be used again.
    async fn finish(
        &self,
        connection: Connection,
        response: Response<hyper::body::Incoming>,
    ) -> Result<Response<Bytes>, ExchangeError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MOST_ANSWER_BYTES).collect().await;
        let body = body.map_err(ExchangeError::Body)?.to_bytes();
        self.keep(connection);
        match head.status.is_success() {
            true => Ok(Response::from_parts(head, body)),
            false => Err(ExchangeError::Status(head.status)),
        }
    }

    async fn connect(&self) -> Result<Connection, ExchangeError> {
        let host = self.authority.host();
        // An IPv6 address stands in brackets there.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = self.authority.port_u16().unwrap_or(DEFAULT_PORT);
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(ExchangeError::Connect)?;
        // Without it, it is only slower.
        let _ = stream.set_nodelay(true);
        let connected = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(ExchangeError::Broken)?;
        // Ends when the sender is dropped or the service closes it.
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

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
    }
}
