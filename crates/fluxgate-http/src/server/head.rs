//! Heads of HTTP/1.1 messages, where a library would take longer than the response itself.

use http::StatusCode;

/// Appends the status line of a response.
pub fn write_status(out: &mut Vec<u8>, status: StatusCode) {
    let reason = status.canonical_reason().unwrap_or_default();
    write_status_line(out, status.as_u16(), reason);
}

/// Appends a status line with the reason of another server.
pub fn write_status_line(out: &mut Vec<u8>, status: u16, reason: &str) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a header.
pub fn write_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a header whose value is a number.
pub fn write_number(out: &mut Vec<u8>, name: &str, number: usize) {
    write_header(out, name, itoa::Buffer::new().format(number).as_bytes());
}
