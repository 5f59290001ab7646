//! Refusals that gRPC clients understand.
//!
//! A gRPC client reads the outcome of a call from `grpc-status`, and takes any HTTP status other than
//! 200 for a broken proxy. So a gRPC request is refused with status 200, without a message, and with
//! the outcome in the headers ("Trailers-Only").

use std::borrow::Cow;

use fluxgate_core::Outcome;
use fluxgate_core::store::Micros;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::headers::HeaderFamilies;
use crate::problem::FailedClosedStatus;
use crate::report::Report;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The codes of gRPC that refusals have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcCode {
    /// The error is of no other kind.
    Unknown = 2,
    /// The client must change the request.
    InvalidArgument = 3,
    /// The request or its response took too long.
    DeadlineExceeded = 4,
    /// A rule forbids the request.
    PermissionDenied = 7,
    /// The quota is used up, or the request is too large.
    ResourceExhausted = 8,
    /// There is no such service or method.
    Unimplemented = 12,
    /// The service cannot answer now.
    Unavailable = 14,
    /// The request lacks credentials.
    Unauthenticated = 16,
}

/// The outcome of a gRPC request that is not forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    code: GrpcCode,
    message: Cow<'static, str>,
    pushback: Option<Pushback>,
}

/// What `grpc-retry-pushback-ms` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushback {
    /// The client may retry after so many milliseconds.
    After(u64),
    /// The client should not retry.
    Never,
}

/// Returns the content type of a gRPC request, whose client understands only gRPC statuses.
pub fn grpc_content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    let content_type = headers.get(CONTENT_TYPE)?;
    is_grpc(content_type.as_bytes()).then_some(content_type)
}

/// Returns whether this is the content type of a gRPC request: `application/grpc`, with a suffix such
/// as `+proto` or `-web`.
pub fn is_grpc(content_type: &[u8]) -> bool {
    suffix(content_type).is_some()
}

/// Returns whether this is the content type of a gRPC request that needs HTTP/2. gRPC-Web does not.
pub fn needs_http2(content_type: &[u8]) -> bool {
    suffix(content_type).is_some_and(|suffix| suffix.first() != Some(&b'-'))
}

fn suffix(content_type: &[u8]) -> Option<&[u8]> {
    const GRPC: &[u8] = b"application/grpc";
    let (start, suffix) = content_type.split_at_checked(GRPC.len())?;
    let ends_name = suffix
        .first()
        .is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (start.eq_ignore_ascii_case(GRPC) && ends_name).then_some(suffix)
}

impl GrpcStatus {
    /// Creates the status of a request that fails for another reason than a denial.
    pub fn new(code: GrpcCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            pushback: None,
        }
    }

    /// Returns the status of a denied request. `families` says whether it tells when to retry.
    pub fn denied(
        report: &impl Report,
        failed_closed: FailedClosedStatus,
        families: HeaderFamilies,
    ) -> Self {
        let wait = report.retry_after().after().map(Micros::ceil_millis);
        let (code, message) = if report.outcome() == Outcome::Forbidden {
            let message = "a rule forbids this request".into();
            (GrpcCode::PermissionDenied, message)
        } else if failed_closed.status_for(report) == StatusCode::SERVICE_UNAVAILABLE {
            let message = "requests cannot be counted at the moment (failed_closed)".into();
            (GrpcCode::Unavailable, message)
        } else {
            let message = match wait {
                Some(wait) => format!("the quota is used up; retry after {wait} ms").into(),
                None => "the quota can never allow this request".into(),
            };
            (GrpcCode::ResourceExhausted, message)
        };
        let pushback = match wait {
            Some(wait) if code != GrpcCode::PermissionDenied => Pushback::After(wait),
            _ => Pushback::Never,
        };
        Self {
            code,
            message,
            pushback: families.retry_after.then_some(pushback),
        }
    }

    /// Returns the status in place of a response with an error of HTTP.
    pub fn of_error(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        let code = match status.as_u16() {
            400 | 414 | 415 => GrpcCode::InvalidArgument,
            401 => GrpcCode::Unauthenticated,
            403 => GrpcCode::PermissionDenied,
            404 | 405 | 417 | 501 => GrpcCode::Unimplemented,
            408 | 504 => GrpcCode::DeadlineExceeded,
            413 | 429 | 431 => GrpcCode::ResourceExhausted,
            502 | 503 => GrpcCode::Unavailable,
            _ => GrpcCode::Unknown,
        };
        Self::new(code, message)
    }

    /// Returns the code.
    pub fn code(&self) -> GrpcCode {
        self.code
    }

    /// Sets the headers of a response without a body.
    pub fn write(&self, headers: &mut HeaderMap) {
        self.for_each(|name, value| {
            // Each value is ASCII without control characters.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        });
    }

    /// Appends the headers as text, each with its line end.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        self.for_each(|name, value| {
            for text in [name.as_str(), ": ", value, "\r\n"] {
                out.extend_from_slice(text.as_bytes());
            }
        });
    }

    fn for_each(&self, mut write: impl FnMut(HeaderName, &str)) {
        let mut digits = itoa::Buffer::new();
        write(STATUS, digits.format(self.code as u8));
        write(MESSAGE, &percent_encoded(&self.message));
        match self.pushback {
            Some(Pushback::After(wait)) => write(RETRY_PUSHBACK, digits.format(wait)),
            Some(Pushback::Never) => write(RETRY_PUSHBACK, "-1"),
            None => {}
        }
    }
}

/// Encodes a message as gRPC does: every byte that is not printable ASCII, and `%`.
fn percent_encoded(message: &str) -> Cow<'_, str> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'%';
    if message.bytes().all(is_plain) {
        return message.into();
    }
    let mut encoded = String::with_capacity(message.len() + 16);
    for byte in message.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
            encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    encoded.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_content_types_of_grpc_are_grpc() {
        for (content_type, is_known, is_on_http2) in [
            ("application/grpc", true, true),
            ("Application/gRPC+proto", true, true),
            ("application/grpc;charset=utf-8", true, true),
            ("application/grpc-web+proto", true, false),
            ("application/grpc-web-text", true, false),
            ("application/grpcx", false, false),
            ("application/grp", false, false),
            ("application/json", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), is_known, "{content_type}");
            let needs = needs_http2(content_type.as_bytes());
            assert_eq!(needs, is_on_http2, "{content_type}");
        }
    }

    #[test]
    fn messages_are_encoded_and_written_alike() {
        let status = GrpcStatus::new(GrpcCode::Unavailable, "50% of é\n");
        let (mut text, mut headers) = (Vec::new(), HeaderMap::new());
        status.write_text(&mut text);
        status.write(&mut headers);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "grpc-status: 14\r\ngrpc-message: 50%25 of %C3%A9%0A\r\n"
        );
        assert_eq!(headers["grpc-status"], "14");
        assert_eq!(headers["grpc-message"], "50%25 of %C3%A9%0A");
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn errors_of_http_have_their_own_codes() {
        for (status, code) in [
            (400, 3),
            (401, 16),
            (403, 7),
            (404, 12),
            (408, 4),
            (413, 8),
            (500, 2),
            (502, 14),
            (503, 14),
            (504, 4),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let written = GrpcStatus::of_error(status, "").code() as u8;
            assert_eq!(written, code, "{status}");
        }
    }
}
