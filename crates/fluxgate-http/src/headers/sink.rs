//! The header fields, and where they are written to.

use http::HeaderName;
use http::header::RETRY_AFTER;

pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The header fields, in the order in which they are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Limit,
    Remaining,
    Reset,
    Policy,
    RateLimit,
    RetryAfter,
}

pub(super) const FIELD_COUNT: usize = 6;

/// The names of the fields, in the same order.
pub(super) static NAMES: [HeaderName; FIELD_COUNT] =
    [LIMIT, REMAINING, RESET, POLICY, RATE_LIMIT, RETRY_AFTER];

/// The start of a line of each field, in the same order.
const LINE_STARTS: [&[u8]; FIELD_COUNT] = [
    b"x-ratelimit-limit: ",
    b"x-ratelimit-remaining: ",
    b"x-ratelimit-reset: ",
    b"ratelimit-policy: ",
    b"ratelimit: ",
    b"retry-after: ",
];

/// Receives each header field at most once, in the order of [`Field`].
pub(super) trait HeaderSink {
    /// Writes the field with the value that `write` appends, or nothing if that is empty.
    fn text(&mut self, field: Field, write: impl FnOnce(&mut Vec<u8>));

    fn number(&mut self, field: Field, number: u64) {
        self.text(field, |text| {
            text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        });
    }
}

/// Appends header lines as text.
pub(super) struct TextSink<'a>(pub(super) &'a mut Vec<u8>);

impl HeaderSink for TextSink<'_> {
    fn text(&mut self, field: Field, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend_from_slice(LINE_STARTS[field as usize]);
        let value = self.0.len();
        write(self.0);
        if self.0.len() == value {
            self.0.truncate(start);
        } else {
            self.0.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_start_with_the_names() {
        for (name, start) in NAMES.iter().zip(LINE_STARTS) {
            assert_eq!(format!("{name}: ").as_bytes(), start);
        }
    }
}
