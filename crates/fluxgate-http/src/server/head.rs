//! Heads of HTTP/1.1 messages, where a library would take longer than the response itself.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

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

/// Returns the time of day, for headers.
#[expect(
    clippy::disallowed_methods,
    reason = "the header `date` is the time of day"
)]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Appends the header `date`, which is formatted once a second.
pub fn write_date(now: SystemTime, out: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let second = since.as_ref().map_or(0, Duration::as_secs);
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second || text.is_empty() {
            *last = second;
            *text = format!("date: {}\r\n", httpdate::fmt_http_date(now));
        }
        out.extend_from_slice(text.as_bytes());
    });
}

/// Returns whether the name of a header may contain this byte (RFC 9110, section 5.6.2).
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_!#$%&'*+.^`|~".contains(&byte)
}

/// Returns the value of a `Content-Length` if it consists of digits.
pub fn content_length(value: &[u8]) -> Option<u64> {
    value.first()?;
    value.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::content_length;

    #[test]
    fn only_digits_are_a_length() {
        assert_eq!(content_length(b"0"), Some(0));
        assert_eq!(content_length(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "+1",
            "-0",
            " 1",
            "1 ",
            "1, 1",
            "0x1",
            "18446744073709551616",
        ] {
            assert_eq!(content_length(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
