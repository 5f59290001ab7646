//! What is written: requests to upstreams, and answers of our own.

use std::time::SystemTime;

use fluxgate_core::Decision;
use fluxgate_tower::LimitHeaders;
use http::StatusCode;

use super::request::PlainRequest;
use crate::gateway::forwarded::{Forwarded, is_about_origin};
use crate::http::write_date;

pub(super) const REQUEST_ID: &str = "x-request-id";

/// Appends a header line.
pub(super) fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a request as it is forwarded.
pub(super) fn request(
    out: &mut Vec<u8>,
    request: &PlainRequest<'_>,
    forwarded: &Forwarded<'_>,
    request_id: &str,
    text: &mut Vec<u8>,
) {
    out.extend_from_slice(request.method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(request.target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in request.headers() {
        if !is_told_anew(name, forwarded.is_trusted) {
            line(out, name, value);
        }
    }
    forwarded.tell(request, text, |name, value| line(out, name, value));
    line(out, REQUEST_ID, request_id.as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(request.body);
}

/// Whether a header is told by us and not passed on. All of them begin with one
/// of two letters, as hardly any other does.
fn is_told_anew(name: &str, is_trusted: bool) -> bool {
    let may_be = matches!(name.as_bytes().first(), Some(b'x' | b'X' | b'f' | b'F'));
    may_be && (name.eq_ignore_ascii_case(REQUEST_ID) || is_about_origin(name, is_trusted))
}

/// Appends what ends the head of an answer: what filters tell, what the request
/// is known by, and whether the connection ends.
pub(super) fn end_of_head(
    out: &mut Vec<u8>,
    told: &LimitHeaders<Decision>,
    request_id: &str,
    is_last: bool,
) {
    if !told.is_empty() {
        told.write_text(out);
    }
    line(out, REQUEST_ID, request_id.as_bytes());
    if is_last {
        line(out, "connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the beginning of an answer of our own with this problem as its body.
pub(super) fn own_head(out: &mut Vec<u8>, status: StatusCode, now: SystemTime, length: usize) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    line(out, "content-type", b"application/problem+json");
    line(
        out,
        "content-length",
        itoa::Buffer::new().format(length).as_bytes(),
    );
    write_date(now, out);
}
