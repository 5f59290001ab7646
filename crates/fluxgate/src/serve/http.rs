//! Serves HTTP/1.1 and HTTP/2 on the connections of a listener.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use fluxgate_http::Problem;
use fluxgate_http::server::{
    ClientStream, ErrorRewriter, LibraryErrors, Listener, PrefixedStream, REQUEST_ID, TRACEPARENT,
    closing_response, request_id, until_closing,
};
use http::header::CONNECTION;
use http::{HeaderValue, Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::telemetry::{RequestIds, Telemetry};

/// How long a client may take to send the head of a request; an idle connection is
/// closed after the same time.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head of a request.
const MAX_HEADER_BYTES: usize = 64 * 1024;
const MAX_STREAMS: u32 = 1_000;
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// The address of the client, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// Serves the connections of a listener with a router.
#[derive(Clone, Debug)]
pub(crate) struct HttpServer {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    router: Router,
    telemetry: Arc<Telemetry>,
    listener: Listener,
}

impl HttpServer {
    pub(crate) fn new(router: Router, telemetry: Arc<Telemetry>, listener: Listener) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            // The buffer alone is no bound: it may hold more than it should.
            .max_header_size(MAX_HEADER_BYTES)
            .max_buf_size(MAX_HEADER_BYTES);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(MAX_HEADER_BYTES as u32)
            .max_concurrent_streams(MAX_STREAMS)
            .keep_alive_interval(Some(HEADER_TIMEOUT));
        Self {
            http1,
            http2,
            router,
            telemetry,
            listener,
        }
    }

    /// Serves a connection until it ends. `prefix` is the input that has been read already. Once
    /// `closing` is cancelled, requests in flight are answered and the connection ends.
    pub(crate) async fn serve<S: ClientStream>(
        self,
        prefix: Vec<u8>,
        stream: S,
        peer: PeerAddress,
        closing: CancellationToken,
    ) {
        let mut stream = PrefixedStream::new(prefix, stream);
        let is_http2 = until_closing(stream.is_http2(), &closing);
        let is_http2 = tokio::time::timeout(HEADER_TIMEOUT, is_http2).await;
        if let Ok(Some(Ok(is_http2))) = is_http2 {
            self.serve_http(stream, is_http2, peer, &closing).await;
        }
    }

    async fn serve_http<S: ClientStream>(
        &self,
        stream: PrefixedStream<S>,
        is_http2: bool,
        peer: PeerAddress,
        closing: &CancellationToken,
    ) {
        let service = service_fn(|request| self.respond(request, peer, closing.clone()));
        let stream = ErrorRewriter::new(
            stream,
            HeadErrors {
                telemetry: Arc::clone(&self.telemetry),
                listener: self.listener,
            },
        );
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
        // A client that disconnects or violates the protocol harms only itself.
        if let Err(error) = ended {
            let listener = self.listener.name();
            tracing::debug!(listener, %error, "a connection ended early");
        }
    }

    fn respond(
        &self,
        mut request: Request<Incoming>,
        peer: PeerAddress,
        closing: CancellationToken,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        let (telemetry, listener) = (Arc::clone(&self.telemetry), self.listener);
        // HTTP/2 announces the end of a connection by GOAWAY.
        let has_connection_header = request.version() < Version::HTTP_2;
        let id = request_id::of(request.headers());
        let traceparent = request.headers().get(TRACEPARENT).cloned();
        request.headers_mut().insert(REQUEST_ID, id.clone());
        request.extensions_mut().insert(peer);
        let response = self.router.clone().call(request.map(Body::new));
        async move {
            let mut response = response.await?;
            let status = response.status().as_u16();
            telemetry.record_response(listener, status, || {
                let traceparent = traceparent.as_ref().and_then(|it| it.to_str().ok());
                RequestIds::new(id.to_str().unwrap_or_default(), traceparent)
            });
            if has_connection_header && closing.is_cancelled() {
                response.headers_mut().insert(CONNECTION, CLOSE);
            }
            response.headers_mut().insert(REQUEST_ID, id);
            Ok(response)
        }
    }
}

/// Answers heads that hyper refuses.
struct HeadErrors {
    telemetry: Arc<Telemetry>,
    listener: Listener,
}

impl LibraryErrors for HeadErrors {
    fn replace(&mut self, status: StatusCode) -> Option<Vec<u8>> {
        let detail = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "the head is larger than 64 KiB, or has more than 100 lines"
            }
            StatusCode::URI_TOO_LONG => "the target is too long",
            _ => "the request cannot be parsed",
        };
        let id = request_id::next();
        let id = id.to_str().unwrap_or_default();
        self.telemetry
            .record_response(self.listener, status.as_u16(), || id);
        Some(closing_response(&Problem::new(status, detail), id))
    }
}
