//! How a client is told that it was refused (RFC 9457).

use fluxgate_core::{Micros, Outcome};
use http::StatusCode;

use crate::bad_request::BadRequest;
use crate::ruling::Report;

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The type of the problem, as registered with IANA.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// Its title.
pub const QUOTA_EXCEEDED_TITLE: &str = "The quota for these requests is used up";
/// The type of the problem where the store failed and the rules refuse then, as
/// registered with IANA.
pub const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/// Its title.
pub const REDUCED_CAPACITY_TITLE: &str = "Requests cannot be counted at the moment";

/// The status of a refusal that failed closed: the store failed, and the rules refuse
/// then. It says nothing about the client's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedClosedStatus {
    /// 503, and a problem of the type [`REDUCED_CAPACITY`].
    #[default]
    ServiceUnavailable,
    /// 429, as if the quota were used up.
    TooManyRequests,
}

impl FailedClosedStatus {
    /// Returns the status of the answer to a request that was refused with this
    /// outcome: 429, unless it failed closed.
    pub fn status_for(self, outcome: Outcome) -> StatusCode {
        match (outcome, self) {
            (Outcome::FailedClosed, Self::ServiceUnavailable) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// Appends the body of a refusal, as JSON; returns the status that belongs to it.
pub fn write_denial(
    ruling: &impl Report,
    failed_closed: FailedClosedStatus,
    out: &mut Vec<u8>,
) -> StatusCode {
    let status = failed_closed.status_for(ruling.outcome());
    write_denial_start(status, out);
    out.extend_from_slice(b"\"violated-policies\":[");
    let mut first = true;
    // Ids hold nothing that would have to be escaped.
    ruling.for_each_violated(|rule, band| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(rule.as_bytes());
        out.push(b'/');
        out.extend_from_slice(band.as_bytes());
        out.push(b'"');
    });
    out.push(b']');
    if status == StatusCode::SERVICE_UNAVAILABLE {
        out.extend_from_slice(b",\"outcome\":\"");
        out.extend_from_slice(ruling.outcome().name().as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b",\"retry_after_ms\":");
    match ruling.retry_after().after().map(Micros::ceil_millis) {
        Some(wait) => out.extend_from_slice(itoa::Buffer::new().format(wait).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    status
}

/// Appends the beginning of the body of a refusal with this status: the members
/// `type`, `title` and `status`, with the comma after them.
pub fn write_denial_start(status: StatusCode, out: &mut Vec<u8>) {
    let (kind, title) = match status {
        StatusCode::SERVICE_UNAVAILABLE => (REDUCED_CAPACITY, REDUCED_CAPACITY_TITLE),
        _ => (QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE),
    };
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"title\":\"");
    out.extend_from_slice(title.as_bytes());
    out.extend_from_slice(b"\",\"status\":");
    out.extend_from_slice(itoa::Buffer::new().format(status.as_u16()).as_bytes());
    out.push(b',');
}

/// Appends the body of a 400, as JSON.
pub(crate) fn write_bad_request(bad: BadRequest, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400");
    out.extend_from_slice(b",\"detail\":\"the request is ambiguous: ");
    // Reasons hold nothing that would have to be escaped.
    out.extend_from_slice(bad.reason().as_bytes());
    out.extend_from_slice(b"\"}");
}
