//! Request ids: `X-Request-Id`.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The name of the header that carries the id of a request.
pub const NAME: &str = "x-request-id";

/// The header that carries the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static(NAME);

const LONGEST: usize = 128;

/// Returns the id of a request: the one its client gave, or a new one.
pub fn of(headers: &HeaderMap) -> HeaderValue {
    given(headers).cloned().unwrap_or_else(next)
}

/// Returns the id that the client gave, if it may be repeated in logs and responses.
pub fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    let given = headers.get(REQUEST_ID);
    given.filter(|id| is_valid(id.as_bytes()))
}

/// Whether an id may be repeated in logs and responses.
pub fn is_valid(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(is_plain)
}

/// Returns an id that no other request has, short of a coincidence.
pub fn next() -> HeaderValue {
    thread_local! {
        /// Starts at random, differently in each thread and process.
        static NEXT: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    let number = NEXT.get();
    NEXT.set(number.wrapping_add(1));
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
    HeaderValue::from_bytes(&digits).expect("hexadecimal digits are a valid header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_differ_and_are_valid() {
        let (a, b) = (next(), next());
        assert_ne!(a, b);
        assert!(is_valid(a.as_bytes()) && a.len() == 16);
        for bad in [
            &b""[..],
            b"a b",
            b"a\"b",
            b"a\x1b",
            "ä".as_bytes(),
            &[b'a'; 129],
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }
}
