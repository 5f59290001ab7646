//! The response to a request that is not forwarded.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::body::MakeBody;
use crate::headers::HeaderFamilies;
use crate::problem::{FailedClosedStatus, PROBLEM_JSON, Problem, write_denial};
use crate::report::Report;
use crate::request_head::BadRequest;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
// Codes of gRPC.
const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// Why a request is not forwarded.
#[derive(Clone, Debug)]
pub(super) enum Rejection<R> {
    Denied(R),
    BadRequest(BadRequest),
}

/// How a rejection is written: as a problem, or as a gRPC status.
#[derive(Clone, Debug)]
pub(super) struct RejectionFormat {
    failed_closed: FailedClosedStatus,
    /// The content type of a gRPC request. Its client understands gRPC statuses only.
    grpc: Option<HeaderValue>,
}

impl RejectionFormat {
    /// Returns the format that the client of a request understands.
    pub(super) fn new(request: &Parts, failed_closed: FailedClosedStatus) -> Self {
        const GRPC: &[u8] = b"application/grpc";
        let content_type = request.headers.get(CONTENT_TYPE);
        let is_grpc = |value: &&HeaderValue| {
            let start = value.as_bytes().get(..GRPC.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        };
        Self {
            failed_closed,
            grpc: content_type.filter(is_grpc).cloned(),
        }
    }

    /// Writes a rejection as a response.
    pub(super) fn response<B, K: MakeBody<B>>(
        self,
        families: HeaderFamilies,
        rejection: &Rejection<impl Report>,
    ) -> Response<K::Body> {
        let mut headers = HeaderMap::new();
        let mut body = Vec::new();
        let mut status = StatusCode::OK;
        if let Rejection::Denied(report) = rejection {
            families.write(report, &mut headers);
        }
        if let Some(content_type) = self.grpc {
            // A response with trailers only.
            let (code, message) = grpc_status(rejection, self.failed_closed);
            headers.insert(CONTENT_TYPE, content_type);
            headers.insert(GRPC_STATUS, code);
            headers.insert(GRPC_MESSAGE, message);
        } else {
            status = match rejection {
                Rejection::Denied(report) => write_denial(report, self.failed_closed, &mut body),
                Rejection::BadRequest(bad) => {
                    let problem = Problem::from(*bad);
                    problem.write(&mut body);
                    problem.status()
                }
            };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let mut response = Response::new(K::from_bytes(body.into()));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// Returns the code and the message of gRPC. Messages hold no characters that gRPC escapes.
fn grpc_status(
    rejection: &Rejection<impl Report>,
    failed_closed: FailedClosedStatus,
) -> (HeaderValue, HeaderValue) {
    let report = match rejection {
        Rejection::BadRequest(bad) => {
            return (INVALID_ARGUMENT, HeaderValue::from_static(bad.reason()));
        }
        Rejection::Denied(report) => report,
    };
    if failed_closed.status_for(report.outcome()) == StatusCode::SERVICE_UNAVAILABLE {
        let message = "requests cannot be counted at the moment (failed_closed)";
        return (UNAVAILABLE, HeaderValue::from_static(message));
    }
    let message = match report.retry_after().after() {
        Some(wait) => format!(
            "the quota is used up; retry after {} ms",
            wait.ceil_millis()
        ),
        None => "the quota can never allow this request".into(),
    };
    let message = HeaderValue::try_from(message);
    let message = message.unwrap_or(HeaderValue::from_static("the quota is used up"));
    (RESOURCE_EXHAUSTED, message)
}
