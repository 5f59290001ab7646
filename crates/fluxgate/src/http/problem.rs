//! Error responses as `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use fluxgate_core::yaml::{Fault, Position};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// An error that a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    /// The faults of rules that were sent, with their positions.
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

    /// Adds a header to the response.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// Adds the faults of what was sent.
    pub(crate) fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// Creates a 400; `detail` names the field.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Names the part of the request that the problem is about.
    pub(crate) fn within(mut self, part: impl std::fmt::Display) -> Self {
        self.detail = format!("{part}: {}", self.detail);
        self
    }

    /// Returns the status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Appends the body.
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
