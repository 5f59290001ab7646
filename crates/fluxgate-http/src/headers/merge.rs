//! Merges limit headers into a response that may have some already.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::sink::{LIMIT, POLICY, RATE_LIMIT, REMAINING, RESET};
use super::values::HeaderValues;

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
