//! Bodies of error responses: `application/problem+json` (RFC 9457).

use std::io::Write as _;

use fluxgate_core::Outcome;
use fluxgate_core::store::Micros;
use fluxgate_core::yaml::{Fault, Position};
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::report::Report;
use crate::request_head::BadRequest;

/// The media type of a problem.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The value of `WWW-Authenticate` in the response to a request with an invalid token.
pub const INVALID_TOKEN_CHALLENGE: HeaderValue =
    HeaderValue::from_static(r#"Bearer error="invalid_token""#);

// Problem types that are registered with IANA.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The status of a request that is denied because the store failed and `on_error` is `deny`.
/// Such a denial says nothing about the client's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedClosedStatus {
    /// 503, with the problem type `temporary-reduced-capacity`.
    #[default]
    ServiceUnavailable,
    /// 429, as if the quota were used up.
    TooManyRequests,
}

impl FailedClosedStatus {
    /// Returns the status of a denied request: that of the rule that forbids it, if one does.
    pub fn status_for(self, report: &impl Report) -> StatusCode {
        match (report.outcome(), self) {
            (Outcome::FailedClosed, Self::ServiceUnavailable) => StatusCode::SERVICE_UNAVAILABLE,
            (Outcome::Forbidden, _) => report.forbidden_status().unwrap_or(StatusCode::FORBIDDEN),
            _ => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// Appends the body for a denied request and returns its status.
pub fn write_denial(
    report: &impl Report,
    failed_closed: FailedClosedStatus,
    out: &mut Vec<u8>,
) -> StatusCode {
    let status = failed_closed.status_for(report);
    write_denial_start(report, status, out);
    out.extend_from_slice(b"\"violated-policies\":[");
    let mut separator = "";
    // Ids hold no characters that JSON escapes.
    report.for_each_violated(|rule, band| {
        for text in [separator, "\"", rule, "/", band, "\""] {
            out.extend_from_slice(text.as_bytes());
        }
        separator = ",";
    });
    out.push(b']');
    if status == StatusCode::SERVICE_UNAVAILABLE {
        out.extend_from_slice(b",\"outcome\":\"");
        out.extend_from_slice(report.outcome().name().as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b",\"retry_after_ms\":");
    match report.retry_after().after().map(Micros::ceil_millis) {
        Some(wait) => out.extend_from_slice(itoa::Buffer::new().format(wait).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    status
}

/// Appends the start of the body for a denied request: the members `type`, `title` and
/// `status`, a `detail` if waiting does not help, and a comma.
pub fn write_denial_start(report: &impl Report, status: StatusCode, out: &mut Vec<u8>) {
    let (kind, title) = match (status, report.outcome()) {
        (StatusCode::SERVICE_UNAVAILABLE, _) => {
            (REDUCED_CAPACITY, "Requests cannot be counted at the moment")
        }
        (_, Outcome::Forbidden) => (
            "about:blank",
            status.canonical_reason().unwrap_or("Forbidden"),
        ),
        (_, Outcome::Never) => (QUOTA_EXCEEDED, "This request can never pass the limit"),
        _ => (QUOTA_EXCEEDED, "The quota for these requests is used up"),
    };
    write_start(kind, title, status, out);
    let detail = match (report.outcome(), report.limit()) {
        (Outcome::Forbidden, _) => Some("a rule forbids this request"),
        (Outcome::Never, Some(_)) => Some("its cost is above the capacity of the limit"),
        // Only a missing key is reported without a band.
        (Outcome::Never, None) => Some("it lacks a part of the key that the rule counts by"),
        _ => None,
    };
    if let Some(detail) = detail {
        for text in ["\"detail\":\"", detail, "\","] {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// An error response other than a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    detail: String,
    /// The errors in a document that the client sent.
    faults: Vec<Fault>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Problem {
    /// Creates a problem with this status. `detail` tells the client what to change.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            faults: Vec::new(),
            header: None,
        }
    }

    /// Creates a problem with status 400.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Creates the problem of a request with an invalid token: 401 with a challenge. It does not
    /// give the reason, which would help to forge a token.
    pub fn invalid_token() -> Self {
        Self::unauthorized("the token is invalid", INVALID_TOKEN_CHALLENGE)
    }

    /// Creates a problem with status 401 and this challenge (`WWW-Authenticate`).
    pub fn unauthorized(detail: impl Into<String>, challenge: HeaderValue) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail).with_header(WWW_AUTHENTICATE, challenge)
    }

    /// Adds a header to the response.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// Lists the errors in a document, with their positions.
    pub fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// Prefixes the detail with the part of the request that it is about.
    pub fn within(mut self, part: impl std::fmt::Display) -> Self {
        self.detail = format!("{part}: {}", self.detail);
        self
    }

    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns what the client should change.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the errors in the document that the client sent.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Appends the body of the response.
    pub fn write(&self, out: &mut Vec<u8>) {
        let title = self.status.canonical_reason().unwrap_or("Error");
        write_start("about:blank", title, self.status, out);
        out.extend_from_slice(b"\"detail\":");
        write_string(&self.detail, out);
        let mut separator = r#","faults":["#;
        for Fault { position, message } in &self.faults {
            let Position { line, column } = position;
            // Writing to memory does not fail.
            let _ = write!(
                out,
                r#"{separator}{{"line":{line},"column":{column},"message":"#
            );
            write_string(message, out);
            out.push(b'}');
            separator = ",";
        }
        out.extend_from_slice(match self.faults[..] {
            [] => &b"}"[..],
            _ => b"]}",
        });
    }

    /// Converts the problem into a response.
    pub fn response<B: From<Vec<u8>>>(self) -> Response<B> {
        let mut body = Vec::new();
        self.write(&mut body);
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.extend(self.header.map(|header| *header));
        response
    }
}

impl From<BadRequest> for Problem {
    fn from(bad: BadRequest) -> Self {
        Self::bad_request(format!("the request is ambiguous: {bad}"))
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.response()
    }
}

fn write_start(kind: &str, title: &str, status: StatusCode, out: &mut Vec<u8>) {
    for text in [
        "{\"type\":\"",
        kind,
        "\",\"title\":\"",
        title,
        "\",\"status\":",
    ] {
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b',');
}

/// Appends a JSON string.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..0x20 => {
                // Writing to memory does not fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_valid_json() {
        let control: String = (0..0x20_u8).map(char::from).collect();
        let position = Position { line: 2, column: 3 };
        let fault = |message: &str| Fault {
            position,
            message: message.into(),
        };
        for faults in [vec![], vec![fault("a")], vec![fault("\"b\\"), fault("é")]] {
            let detail = format!("`x` {control} \"\\ ü");
            let problem = Problem::bad_request(&*detail).with_faults(faults.clone());
            let mut body = Vec::new();
            problem.within("part").write(&mut body);
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let mut expected = serde_json::json!({
                "type": "about:blank",
                "title": "Bad Request",
                "status": 400,
                "detail": format!("part: {detail}"),
            });
            if !faults.is_empty() {
                let faults = faults.iter().map(
                    |fault| serde_json::json!({ "line": 2, "column": 3, "message": fault.message }),
                );
                expected["faults"] = faults.collect();
            }
            assert_eq!(body, expected);
        }
    }
}
