//! Posts spans and metrics to a collector.

use std::fmt;
use std::io;
use std::pin::pin;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use url::Url;

use crate::config::HttpUrl;
use crate::telemetry::percent::percent_decoded;

/// The default path for spans.
const TRACES: &str = "/v1/traces";
/// The default path for metrics.
const METRICS: &str = "/v1/metrics";

/// The address of a collector. Displayed without its password.
#[derive(Debug)]
pub(super) struct Endpoint {
    url: HttpUrl,
    host: String,
    port: u16,
    /// The path and the query.
    path: String,
    /// The value of the `authorization` header.
    authorization: Option<String>,
}

/// Why a collector did not accept a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    #[error("no response: {0}")]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("the collector responded with {0}")]
    Status(StatusCode),
}

impl Endpoint {
    /// Returns where spans are sent: to the path of the URL, or to the default path.
    pub(super) fn of_traces(url: &HttpUrl) -> Self {
        let path = match url.url().path() {
            "" | "/" => TRACES,
            path => path,
        };
        Self::new(url, path)
    }

    /// Returns where metrics are sent: beside the spans. `None` if the path of spans does not tell
    /// where that is.
    pub(super) fn of_metrics(url: &HttpUrl) -> Option<Self> {
        let path = match url.url().path() {
            "" | "/" => METRICS.to_owned(),
            path => path.strip_suffix(TRACES)?.to_owned() + METRICS,
        };
        Some(Self::new(url, &path))
    }

    fn new(url: &HttpUrl, path: &str) -> Self {
        let parsed = url.url();
        let query = parsed.query().map(|query| format!("?{query}"));
        Self {
            host: parsed.host_str().unwrap_or_default().to_owned(),
            port: parsed.port_or_known_default().unwrap_or(80),
            path: format!("{path}{}", query.unwrap_or_default()),
            authorization: basic_auth(parsed),
            url: url.clone(),
        }
    }

    /// Sends a request, on a new connection because requests are seconds apart.
    pub(super) async fn post(&self, body: String) -> Result<(), PostError> {
        let (host, port) = (&*self.host, self.port);
        // URLs write IPv6 addresses in brackets, `connect` does not accept them.
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((address, port)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::post(&self.path)
            .header(HOST, format!("{host}:{port}"))
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let mut response = pin!(sender.send_request(request));
        // Drives the connection until the response arrives. A connection that has ended may
        // have delivered it.
        let response = tokio::select! {
            response = response.as_mut() => response?,
            ended = connection => {
                ended?;
                response.await?
            }
        };
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(PostError::Status(status)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)
    }
}

/// Returns the `authorization` header for the name and password in a URL, if any.
fn basic_auth(url: &Url) -> Option<String> {
    let password = url.password().unwrap_or_default();
    if url.username().is_empty() && password.is_empty() {
        return None;
    }
    let mut pair = percent_decoded(url.username().as_bytes());
    pair.push(b':');
    pair.extend(percent_decoded(password.as_bytes()));
    Some(format!("Basic {}", BASE64_STANDARD.encode(&pair)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_sent_beside_the_spans() {
        let cases = [
            ("http://h:4318", "/v1/traces", Some("/v1/metrics")),
            ("http://h/", "/v1/traces", Some("/v1/metrics")),
            (
                "http://h/otlp/v1/traces?k=v",
                "/otlp/v1/traces?k=v",
                Some("/otlp/v1/metrics?k=v"),
            ),
            ("http://h/spans", "/spans", None),
        ];
        for (url, traces, metrics) in cases {
            let url = HttpUrl::parse(url).unwrap();
            assert_eq!(Endpoint::of_traces(&url).path, traces);
            assert_eq!(
                Endpoint::of_metrics(&url).map(|it| it.path).as_deref(),
                metrics
            );
        }
    }

    #[test]
    fn names_and_passwords_become_basic_authentication() {
        let cases = [
            ("http://h", None),
            (
                "http://Aladdin:open%20sesame@h",
                Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ),
            ("http://a:b@h", Some("Basic YTpi")),
            ("http://a@h", Some("Basic YTo=")),
        ];
        for (url, expected) in cases {
            let url = Url::parse(url).unwrap();
            assert_eq!(basic_auth(&url).as_deref(), expected);
        }
    }
}
