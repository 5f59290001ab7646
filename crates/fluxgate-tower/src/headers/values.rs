//! The headers, and where they are written to.

use http::HeaderName;
use http::header::RETRY_AFTER;

use super::push_parameter;

pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The headers, in the order in which they are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name {
    Limit,
    Remaining,
    Reset,
    Policy,
    RateLimit,
    RetryAfter,
}

pub(super) const COUNT: usize = 6;

/// Their names, in the same order.
pub(super) static NAMES: [HeaderName; COUNT] =
    [LIMIT, REMAINING, RESET, POLICY, RATE_LIMIT, RETRY_AFTER];

/// How a line of each of them begins, in the same order.
const STARTS: [&[u8]; COUNT] = [
    b"x-ratelimit-limit: ",
    b"x-ratelimit-remaining: ",
    b"x-ratelimit-reset: ",
    b"ratelimit-policy: ",
    b"ratelimit: ",
    b"retry-after: ",
];

/// Where headers are written to, each at most once, in the order of [`Name`].
pub(super) trait Out {
    /// A header of this name, with the value that `write` appends; none if that
    /// is nothing.
    fn header(&mut self, name: Name, write: impl FnOnce(&mut Vec<u8>));

    fn number(&mut self, name: Name, number: u64) {
        self.header(name, |text| push_parameter(b"", number, text));
    }
}

/// Lines of text.
pub(super) struct Lines<'a>(pub(super) &'a mut Vec<u8>);

impl Out for Lines<'_> {
    fn header(&mut self, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend_from_slice(STARTS[name as usize]);
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
    fn lines_begin_with_the_names() {
        for (name, start) in NAMES.iter().zip(STARTS) {
            assert_eq!(format!("{name}: ").as_bytes(), start);
        }
    }
}
