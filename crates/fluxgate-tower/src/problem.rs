//! How a client is told that it was refused (RFC 9457).

use fluxgate_core::Micros;

use crate::ruling::Ruling;

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The type of the problem, as registered with IANA.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// Its title.
pub const QUOTA_EXCEEDED_TITLE: &str = "The quota for these requests is used up";

/// Appends the body of a 429, as JSON.
pub fn write_refusal(ruling: &impl Ruling, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(QUOTA_EXCEEDED.as_bytes());
    out.extend_from_slice(b"\",\"title\":\"");
    out.extend_from_slice(QUOTA_EXCEEDED_TITLE.as_bytes());
    out.extend_from_slice(b"\",\"status\":429,\"violated-policies\":[");
    let mut first = true;
    // Ids hold nothing that would have to be escaped.
    ruling.each_violated(|rule, band| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(rule.as_bytes());
        out.push(b'/');
        out.extend_from_slice(band.as_bytes());
        out.push(b'"');
    });
    out.extend_from_slice(b"],\"retry_after_ms\":");
    match ruling.retry_after().after().map(Micros::ceil_millis) {
        Some(wait) => out.extend_from_slice(itoa::Buffer::new().format(wait).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}
