//! What went wrong, as `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use fluxgate_core::LimiterError;
use fluxgate_core::yaml::{Fault, Position};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::engine::EngineError;

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Why a request is not answered as it hoped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    /// What is wrong with rules that were sent, and where.
    faults: Vec<Fault>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            faults: Vec::new(),
            header: None,
        }
    }

    /// The same with a header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// The same with all that is wrong, each with its place.
    pub(crate) fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// What the client sent is wrong; `detail` names the field.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The same, about a part of what was sent.
    pub(crate) fn within(mut self, part: impl std::fmt::Display) -> Self {
        self.detail = format!("{part}: {}", self.detail);
        self
    }
}

impl Problem {
    /// The status it is answered with.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Appends the body that tells it.
    pub(crate) fn write(&self, json: &mut Vec<u8>) {
        let reason = self.status.canonical_reason().unwrap_or("Error");
        let mut body = serde_json::json!({
            "type": "about:blank",
            "title": reason,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if !self.faults.is_empty() {
            let faults = self.faults.iter().map(|fault| {
                let Position { line, column } = fault.position;
                serde_json::json!({ "line": line, "column": column, "message": fault.message })
            });
            body["faults"] = faults.collect();
        }
        json.extend_from_slice(body.to_string().as_bytes());
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = Vec::new();
        self.write(&mut body);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        if let Some(header) = self.header {
            let (name, value) = *header;
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::Call(LimiterError::UnknownRuleSet(_))
            | EngineError::Call(LimiterError::UnknownRule { .. }) => StatusCode::NOT_FOUND,
            EngineError::Call(LimiterError::Identity(why)) => {
                return Self::bad(format!("`identity`: {why}"));
            }
            // The rules are not there yet, or the store failed.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}", uri.path());
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
