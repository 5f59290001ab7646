//! The response to a request that is refused.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::bad_request::BadRequest;
use crate::body::MakeBody;
use crate::headers::HeaderFamilies;
use crate::problem::{FailedClosedStatus, PROBLEM_JSON, write_bad_request, write_denial};
use crate::ruling::Report;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// RESOURCE_EXHAUSTED.
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
/// UNAVAILABLE.
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// INVALID_ARGUMENT.
const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");

/// How a client is told.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    failed_closed: FailedClosedStatus,
    /// Where the request is one of gRPC, its content type: a gRPC client makes little
    /// of any answer but a status of gRPC.
    grpc: Option<HeaderValue>,
}

impl Form {
    /// What the sender of a request wants.
    pub(crate) fn of(request: &Parts, failed_closed: FailedClosedStatus) -> Self {
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

    /// The response to a request that could be read in two ways.
    pub(crate) fn bad_request<B, K: MakeBody<B>>(self, bad: BadRequest) -> Response<K::Body> {
        let mut text = Vec::new();
        if self.grpc.is_none() {
            write_bad_request(bad, &mut text);
        }
        let length = text.len();
        let mut response = Response::new(K::of_refusal(Bytes::from(text)));
        let headers = response.headers_mut();
        match self.grpc {
            None => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                *response.status_mut() = StatusCode::BAD_REQUEST;
            }
            Some(content_type) => {
                headers.insert(CONTENT_TYPE, content_type);
                headers.insert(GRPC_STATUS, INVALID_ARGUMENT);
                headers.insert(GRPC_MESSAGE, HeaderValue::from_static(bad.reason()));
            }
        }
        response
    }

    /// The response.
    pub(crate) fn response<B, K: MakeBody<B>>(
        self,
        families: HeaderFamilies,
        ruling: &impl Report,
    ) -> Response<K::Body> {
        let status = self.failed_closed.status_for(ruling.outcome());
        let mut text = Vec::new();
        if self.grpc.is_none() {
            write_denial(ruling, self.failed_closed, &mut text);
        }
        let length = text.len();
        let mut response = Response::new(K::of_refusal(Bytes::from(text)));
        let headers = response.headers_mut();
        families.write(ruling, headers);
        match self.grpc {
            None => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                *response.status_mut() = status;
            }
            // Headers that are trailers at once: there is no message.
            Some(content_type) => {
                let (code, message) = match status {
                    StatusCode::SERVICE_UNAVAILABLE => (UNAVAILABLE, FAILED_CLOSED),
                    _ => (RESOURCE_EXHAUSTED, used_up(ruling)),
                };
                headers.insert(CONTENT_TYPE, content_type);
                headers.insert(GRPC_STATUS, code);
                headers.insert(GRPC_MESSAGE, message);
            }
        }
        response
    }
}

/// The message of gRPC where the store failed.
const FAILED_CLOSED: HeaderValue =
    HeaderValue::from_static("requests cannot be counted at the moment (failed_closed)");

/// Says when to come back. There is nothing in it that would have to be escaped.
fn used_up(ruling: &impl Report) -> HeaderValue {
    let message = match ruling.retry_after().after() {
        Some(wait) => format!(
            "the quota is used up; retry after {} ms",
            wait.ceil_millis()
        ),
        None => "the quota can never allow this request".into(),
    };
    HeaderValue::try_from(message).unwrap_or(HeaderValue::from_static("the quota is used up"))
}
