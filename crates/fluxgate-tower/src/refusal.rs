//! The response to a request that is refused.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::body::Bodies;
use crate::headers::HeaderFamilies;
use crate::problem::{PROBLEM_JSON, write_refusal};
use crate::ruling::Ruling;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// RESOURCE_EXHAUSTED.
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");

/// How a client wants to be told.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// By status 429 and a problem in JSON.
    Http,
    /// By a status of gRPC, for a request of this content type: a gRPC client
    /// makes little of any other answer.
    Grpc(HeaderValue),
}

impl Form {
    /// What the sender of a request wants.
    pub(crate) fn of(request: &Parts) -> Self {
        const GRPC: &[u8] = b"application/grpc";
        let content_type = request.headers.get(CONTENT_TYPE);
        let is_grpc = |value: &&HeaderValue| {
            let start = value.as_bytes().get(..GRPC.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        };
        match content_type.filter(is_grpc) {
            Some(value) => Self::Grpc(value.clone()),
            None => Self::Http,
        }
    }

    /// The response.
    pub(crate) fn response<B, K: Bodies<B>>(
        self,
        families: HeaderFamilies,
        ruling: &impl Ruling,
    ) -> Response<K::Body> {
        let mut text = Vec::new();
        if let Self::Http = self {
            write_refusal(ruling, &mut text);
        }
        let length = text.len();
        let mut response = Response::new(K::of_refusal(Bytes::from(text)));
        let headers = response.headers_mut();
        families.write(ruling, headers);
        match self {
            Self::Http => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            }
            // Headers that are trailers at once: there is no message.
            Self::Grpc(content_type) => {
                headers.insert(CONTENT_TYPE, content_type);
                headers.insert(GRPC_STATUS, RESOURCE_EXHAUSTED);
                headers.insert(GRPC_MESSAGE, grpc_message(ruling));
            }
        }
        response
    }
}

/// Says when to come back. There is nothing in it that would have to be escaped.
fn grpc_message(ruling: &impl Ruling) -> HeaderValue {
    let message = match ruling.retry_after().after() {
        Some(wait) => format!(
            "the quota is used up; retry after {} ms",
            wait.ceil_millis()
        ),
        None => "the quota can never allow this request".into(),
    };
    HeaderValue::try_from(message).unwrap_or(HeaderValue::from_static("the quota is used up"))
}
