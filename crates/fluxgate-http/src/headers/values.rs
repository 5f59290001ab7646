//! The header fields, and where they are written to: text, or the map of a response that may have
//! some of them already.

use std::cell::Cell;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

/// The values of all header fields. They are boxed because a response future carries them.
#[derive(Debug)]
pub struct HeaderValues(Box<[Option<HeaderValue>; FIELD_COUNT]>);

impl HeaderValues {
    /// Collects the values that `write` sends to its sink.
    pub(super) fn collect(write: impl FnOnce(&mut ValueSink)) -> Self {
        thread_local! {
            static CACHE: Cell<Option<Box<Cache>>> = const { Cell::new(None) };
        }
        // `write` may call this function too, so the cache is taken and not borrowed. It is
        // empty while the thread ends.
        let cache = CACHE.try_with(Cell::take).ok().flatten();
        let mut sink = ValueSink {
            values: Self(Box::new([const { None }; FIELD_COUNT])),
            cache: cache.unwrap_or_default(),
        };
        write(&mut sink);
        let ValueSink { values, cache } = sink;
        let _ = CACHE.try_with(|cell| cell.set(Some(cache)));
        values
    }

    /// Sets the headers, replacing those of the same names.
    pub(super) fn insert_into(self, headers: &mut HeaderMap) {
        reserve(headers, self.0.iter().flatten().count());
        for (name, value) in NAMES.iter().zip(*self.0) {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }

    /// Sets the headers that are missing.
    pub fn insert_missing_into(self, headers: &mut HeaderMap) {
        for (name, value) in NAMES.iter().zip(*self.0) {
            if let Some(value) = value {
                headers.entry(name).or_insert(value);
            }
        }
    }
}

/// Makes room for so many more headers.
fn reserve(headers: &mut HeaderMap, additional: usize) {
    /// Servers add `Content-Length`.
    const OTHERS: usize = 1;
    let wanted = headers.len() + additional + OTHERS;
    if additional > 0 && wanted > headers.capacity() {
        // `HeaderMap::reserve` copies the whole table; this copies the few entries.
        let mut larger = HeaderMap::with_capacity(wanted);
        larger.extend(headers.drain());
        *headers = larger;
    }
}

/// The last values of a thread. Limits and policies rarely differ from those of the previous
/// request, and the reset changes once a second: cloning a value is cheaper than creating it.
#[derive(Default)]
struct Cache {
    limit: Option<(u64, HeaderValue)>,
    reset: Option<(u64, HeaderValue)>,
    policy: Option<HeaderValue>,
    /// A buffer for the text of a value.
    text: Vec<u8>,
}

/// Collects header values.
pub(super) struct ValueSink {
    values: HeaderValues,
    cache: Box<Cache>,
}

impl HeaderSink for ValueSink {
    fn text(&mut self, field: Field, write: impl FnOnce(&mut Vec<u8>)) {
        let Cache { policy, text, .. } = &mut *self.cache;
        text.clear();
        write(text);
        self.values.0[field as usize] = match field {
            _ if text.is_empty() => None,
            Field::Policy => {
                if policy
                    .as_ref()
                    .is_none_or(|policy| policy.as_bytes() != text)
                {
                    *policy = value(text);
                }
                policy.clone()
            }
            _ => value(text),
        };
    }

    fn number(&mut self, field: Field, number: u64) {
        let create = || value(itoa::Buffer::new().format(number).as_bytes());
        let cached = match field {
            Field::Limit => &mut self.cache.limit,
            Field::Reset => &mut self.cache.reset,
            _ => {
                self.values.0[field as usize] = create();
                return;
            }
        };
        if cached.as_ref().is_none_or(|(known, _)| *known != number) {
            *cached = create().map(|value| (number, value));
        }
        self.values.0[field as usize] = cached.as_ref().map(|(_, value)| value.clone());
    }
}

/// Values consist of ids and digits, so this is never `None`.
fn value(text: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text).ok()
}

impl HeaderValues {
    /// Adds the headers of an allowed request to its response, which may report limits of
    /// inner services. Lists are joined, ours first. Of the legacy headers those of a denial
    /// win, or else those with less remaining.
    pub fn merge_into<B>(self, response: &mut Response<B>) {
        let denied = response.status() == StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        let inner = InnerHeaders::take(headers);
        self.insert_into(headers);
        if let Some(inner) = inner {
            inner.restore(denied, headers);
        }
    }
}

/// The limit headers that the response had before.
struct InnerHeaders {
    legacy: [Option<HeaderValue>; 3],
    lists: [(HeaderName, Option<HeaderValue>); 2],
}

impl InnerHeaders {
    fn take(headers: &mut HeaderMap) -> Option<Self> {
        // Responses have few headers: one scan costs less than three lookups.
        let is_ours = |name: &HeaderName| [REMAINING, POLICY, RATE_LIMIT].contains(name);
        if !headers.keys().any(is_ours) {
            return None;
        }
        Some(Self {
            legacy: [LIMIT, REMAINING, RESET].map(|name| headers.remove(name)),
            lists: [POLICY, RATE_LIMIT].map(|name| {
                let members = join_lines(headers, &name);
                headers.remove(&name);
                (name, members)
            }),
        })
    }

    fn restore(self, denied: bool, headers: &mut HeaderMap) {
        for (name, theirs) in self.lists {
            let Some(theirs) = theirs else {
                continue;
            };
            let both = match headers.get(&name) {
                Some(ours) => join(ours, &theirs).unwrap_or(theirs),
                None => theirs,
            };
            headers.insert(name, both);
        }
        let theirs = self.legacy[1].as_ref().and_then(number);
        let ours = headers.get(REMAINING).and_then(number);
        let theirs_win = match (theirs, ours) {
            (Some(theirs), Some(ours)) => denied || theirs <= ours,
            (_, ours) => ours.is_none(),
        };
        if theirs_win {
            for (name, value) in [LIMIT, REMAINING, RESET].into_iter().zip(self.legacy) {
                match value {
                    Some(value) => headers.insert(name, value),
                    None => headers.remove(name),
                };
            }
        }
    }
}

fn number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// Joins all lines of a header.
fn join_lines(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?.clone();
    Some(lines.fold(first, |all, next| join(&all, next).unwrap_or(all)))
}

fn join(a: &HeaderValue, b: &HeaderValue) -> Option<HeaderValue> {
    let both = [a.as_bytes(), b",", b.as_bytes()].concat();
    HeaderValue::from_bytes(&both).ok()
}

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
