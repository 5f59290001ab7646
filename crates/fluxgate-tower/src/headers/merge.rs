//! Headers on a response that may tell of limits already.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::map::Values;
use super::values::{LIMIT, POLICY, RATE_LIMIT, REMAINING, RESET};

impl Values {
    /// Adds what there is to tell of a request that passed to the response it
    /// got. That may tell of limits further in: the lists are joined, ours first,
    /// and of the older headers those with less left stay, or those of a refusal.
    pub(crate) fn merge_into<B>(self, response: &mut Response<B>) {
        let refused = response.status() == StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        let inner = Inner::take(headers);
        self.insert_into(headers);
        if let Some(inner) = inner {
            inner.put_back(refused, headers);
        }
    }
}

/// What the response said before.
struct Inner {
    legacy: [Option<HeaderValue>; 3],
    lists: [(HeaderName, Option<HeaderValue>); 2],
}

impl Inner {
    fn take(headers: &mut HeaderMap) -> Option<Self> {
        // Responses have few headers: to look at each costs less than to look for
        // each of ours.
        let is_ours = |name: &HeaderName| [REMAINING, POLICY, RATE_LIMIT].contains(name);
        if !headers.keys().any(is_ours) {
            return None;
        }
        Some(Self {
            legacy: [LIMIT, REMAINING, RESET].map(|name| headers.remove(name)),
            lists: [POLICY, RATE_LIMIT].map(|name| {
                let members = joined(headers, &name);
                headers.remove(&name);
                (name, members)
            }),
        })
    }

    fn put_back(self, refused: bool, headers: &mut HeaderMap) {
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
        let stays = match (theirs, ours) {
            (Some(theirs), Some(ours)) => refused || theirs <= ours,
            (_, ours) => ours.is_none(),
        };
        if stays {
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

/// All lines of a header as one.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?.clone();
    Some(lines.fold(first, |all, next| join(&all, next).unwrap_or(all)))
}

fn join(a: &HeaderValue, b: &HeaderValue) -> Option<HeaderValue> {
    let both = [a.as_bytes(), b",", b.as_bytes()].concat();
    HeaderValue::from_bytes(&both).ok()
}
