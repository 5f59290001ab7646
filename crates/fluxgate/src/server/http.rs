//! One HTTP connection.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::begun::Begun;
use super::telling::Telling;
use super::{express, request_id};
use crate::api::Api;
use crate::engine::{Engine, Listener, TRACEPARENT};
use crate::telemetry::KnownBy;

/// How long a client may take to send the head of a request; an idle
/// connection is closed after the same time.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection without a request stays open for one once the service
/// is to end.
pub(crate) const LINGER: Duration = Duration::from_millis(500);
/// How large the head of a request may be.
const MOST_HEADER_BYTES: usize = 64 * 1024;
const MOST_STREAMS: u32 = 1_000;
const CLOSE: HeaderValue = HeaderValue::from_static("close");

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How connections of a listener are served.
#[derive(Clone, Debug)]
pub(crate) struct HttpServer {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    router: Router,
    /// Who answers plain checks, where there are any.
    checks: Option<Arc<Api>>,
    engine: Arc<Engine>,
    listener: Listener,
}

impl HttpServer {
    /// The API.
    pub(crate) fn api(api: &Arc<Api>, engine: Arc<Engine>) -> Self {
        Self {
            checks: Some(Arc::clone(api)),
            ..Self::new(api.router(), engine, Listener::Api)
        }
    }

    /// Any listener.
    pub(crate) fn new(router: Router, engine: Arc<Engine>, listener: Listener) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            // The buffer alone is no bound: it may hold more than it should.
            .max_header_size(MOST_HEADER_BYTES)
            .max_buf_size(MOST_HEADER_BYTES);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(MOST_HEADER_BYTES as u32)
            .max_concurrent_streams(MOST_STREAMS)
            .keep_alive_interval(Some(HEADER_TIMEOUT));
        Self {
            http1,
            http2,
            router,
            checks: None,
            engine,
            listener,
        }
    }

    /// Serves a connection until it ends. When `closing` closes, what is in
    /// flight is answered, and the connection ends then.
    pub(crate) async fn serve(self, mut stream: TcpStream, closing: CancellationToken) {
        let first = match &self.checks {
            Some(api) => express::serve(&mut stream, api, &closing).await,
            None => Some(Vec::new()),
        };
        // Whoever says nothing more has been answered.
        let Some(first) = first else { return };
        let mut stream = Begun::new(first, stream);
        let is_http2 = until_closing(stream.is_http2(), &closing);
        let is_http2 = tokio::time::timeout(HEADER_TIMEOUT, is_http2).await;
        if let Ok(Some(Ok(is_http2))) = is_http2 {
            self.serve_http(stream, is_http2, &closing).await;
        }
    }

    async fn serve_http(
        &self,
        stream: Begun<TcpStream>,
        is_http2: bool,
        closing: &CancellationToken,
    ) {
        let service = service_fn(|request| self.answer(request, closing.clone()));
        let stream = Telling::new(stream, Arc::clone(&self.engine), self.listener);
        let stream = TokioIo::new(stream);
        let ended = if is_http2 {
            let mut connection = pin!(self.http2.serve_connection(stream, service));
            tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        } else {
            let mut connection = pin!(self.http1.serve_connection(stream, service));
            match until_closing(connection.as_mut(), closing).await {
                Some(ended) => ended,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        // A client that breaks off or talks nonsense harms only itself.
        if let Err(error) = ended {
            let listener = self.listener.name();
            tracing::debug!(listener, %error, "a connection ended early");
        }
    }

    fn answer(
        &self,
        mut request: Request<Incoming>,
        closing: CancellationToken,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        let (engine, listener) = (Arc::clone(&self.engine), self.listener);
        // HTTP/2 has its own way to say that the connection ends.
        let tells_of_end = request.version() < Version::HTTP_2;
        let id = request_id::of(request.headers());
        let traceparent = request.headers().get(TRACEPARENT).cloned();
        request.headers_mut().insert(REQUEST_ID, id.clone());
        let answer = self.router.clone().call(request.map(Body::new));
        async move {
            let mut answer = answer.await?;
            let status = answer.status().as_u16();
            let known_by = || {
                let traceparent = traceparent.as_ref().and_then(|it| it.to_str().ok());
                KnownBy::new(id.to_str().unwrap_or_default(), traceparent)
            };
            engine.telemetry().answered(listener, status, known_by);
            if tells_of_end && closing.is_cancelled() {
                answer.headers_mut().insert(CONNECTION, CLOSE);
            }
            answer.headers_mut().insert(REQUEST_ID, id);
            Ok(answer)
        }
    }
}

/// What comes of `future`. Once `closing` closes it is given a moment more: a
/// request may be on its way, and with its answer the client is told of the end.
pub(crate) async fn until_closing<F: Future>(
    future: F,
    closing: &CancellationToken,
) -> Option<F::Output> {
    let mut future = pin!(future);
    tokio::select! {
        biased;
        output = future.as_mut() => Some(output),
        () = closing.cancelled() => tokio::time::timeout(LINGER, future).await.ok(),
    }
}
