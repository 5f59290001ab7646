//! Where headers are written to.

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

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

const COUNT: usize = 6;

/// Their names, in the same order.
static NAMES: [HeaderName; COUNT] = [LIMIT, REMAINING, RESET, POLICY, RATE_LIMIT, RETRY_AFTER];

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
        let name = &NAMES[name as usize];
        self.0.extend_from_slice(name.as_str().as_bytes());
        self.0.extend_from_slice(b": ");
        let value = self.0.len();
        write(self.0);
        if self.0.len() == value {
            self.0.truncate(start);
        } else {
            self.0.extend_from_slice(b"\r\n");
        }
    }
}

/// The values of all headers, in one piece of memory. It is small: it is carried
/// along until there is a response to put it on.
#[derive(Debug)]
pub(crate) struct Values {
    text: Vec<u8>,
    /// Where each of them ends; one that is not told ends where it begins.
    ends: [u32; COUNT],
    /// How many of the names have been written or passed over.
    written: usize,
}

impl Default for Values {
    fn default() -> Self {
        /// Enough for a few bands.
        const ROOM: usize = 256;
        Self {
            text: Vec::with_capacity(ROOM),
            ends: [0; COUNT],
            written: 0,
        }
    }
}

impl Out for Values {
    fn header(&mut self, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.pass_to(name as usize);
        write(&mut self.text);
        self.pass_to(name as usize + 1);
    }
}

impl Values {
    /// Passes over what is not told before this place.
    fn pass_to(&mut self, place: usize) {
        let end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        while self.written < place {
            self.ends[self.written] = end;
            self.written += 1;
        }
    }

    /// Sets the headers, in place of what stands there.
    pub(super) fn insert_into(mut self, headers: &mut HeaderMap) {
        self.pass_to(COUNT);
        let text = Bytes::from(self.text);
        // Grown once, and not in the middle.
        headers.reserve(COUNT);
        let mut start = 0;
        for (name, end) in NAMES.iter().zip(self.ends) {
            let end = end as usize;
            // Ids and digits are all that a value may hold.
            if start < end
                && let Ok(value) = HeaderValue::from_maybe_shared(text.slice(start..end))
            {
                headers.insert(name.clone(), value);
            }
            start = end;
        }
    }
}
