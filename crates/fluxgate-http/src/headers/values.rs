//! Header values for the map of a response.

use std::cell::Cell;

use http::{HeaderMap, HeaderValue};

use super::sink::{FIELD_COUNT, Field, HeaderSink, NAMES};

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
