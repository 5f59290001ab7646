//! Headers for the map of a response.

use std::cell::Cell;

use http::{HeaderMap, HeaderValue};

use super::values::{COUNT, NAMES, Name, Out};

/// The values of all headers, in one piece of memory, so that it is small: it is
/// carried along until there is a response to put it on.
#[derive(Debug)]
pub(crate) struct Values(Box<[Option<HeaderValue>; COUNT]>);

impl Values {
    /// What is told.
    pub(super) fn of(tell: impl FnOnce(&mut Making)) -> Self {
        thread_local! {
            static LAST: Cell<Option<Box<Last>>> = const { Cell::new(None) };
        }
        // Taken, so that who tells may be somebody who does this as well. A thread
        // that ends remembers nothing.
        let last = LAST.try_with(Cell::take).ok().flatten();
        let mut making = Making {
            values: Self(Box::new([const { None }; COUNT])),
            last: last.unwrap_or_default(),
        };
        tell(&mut making);
        let Making { values, last } = making;
        let _ = LAST.try_with(|place| place.set(Some(last)));
        values
    }

    /// Sets the headers, in place of what stands there.
    pub(super) fn insert_into(self, headers: &mut HeaderMap) {
        make_room(headers, self.0.iter().flatten().count());
        for (name, value) in NAMES.iter().zip(*self.0) {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
}

/// Gives these headers room for so many more.
fn make_room(headers: &mut HeaderMap, more: usize) {
    /// What a server adds: how long a response is.
    const OTHERS: usize = 1;
    let wanted = headers.len() + more + OTHERS;
    if more > 0 && wanted > headers.capacity() {
        // A map that grows is copied with all its room; here its few entries are.
        let mut roomy = HeaderMap::with_capacity(wanted);
        roomy.extend(headers.drain());
        *headers = roomy;
    }
}

/// What a thread told last. Limits and policies are mostly those of the request
/// before, and a second is long: to share a value costs less than to make it anew.
#[derive(Default)]
struct Last {
    limit: Option<(u64, HeaderValue)>,
    reset: Option<(u64, HeaderValue)>,
    policy: Option<HeaderValue>,
    /// Where values are written first.
    text: Vec<u8>,
}

/// Values that are being made.
pub(super) struct Making {
    values: Values,
    last: Box<Last>,
}

impl Out for Making {
    fn header(&mut self, name: Name, write: impl FnOnce(&mut Vec<u8>)) {
        let Last { policy, text, .. } = &mut *self.last;
        text.clear();
        write(text);
        self.values.0[name as usize] = match name {
            _ if text.is_empty() => None,
            Name::Policy => {
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

    fn number(&mut self, name: Name, number: u64) {
        let make = || value(itoa::Buffer::new().format(number).as_bytes());
        let last = match name {
            Name::Limit => &mut self.last.limit,
            Name::Reset => &mut self.last.reset,
            _ => {
                self.values.0[name as usize] = make();
                return;
            }
        };
        if last.as_ref().is_none_or(|(known, _)| *known != number) {
            *last = make().map(|value| (number, value));
        }
        self.values.0[name as usize] = last.as_ref().map(|(_, value)| value.clone());
    }
}

/// Ids and digits are all that a value may hold.
fn value(text: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text).ok()
}
