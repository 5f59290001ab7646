//! What requests are known by in logs.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderValue};

use super::REQUEST_ID;

const LONGEST: usize = 128;

/// What a request with these headers is known by: what the client calls it, or
/// a name that is made for it.
pub(crate) fn of(headers: &HeaderMap) -> HeaderValue {
    given(headers).cloned().unwrap_or_else(next)
}

/// What the client calls its request, if it is fit to be repeated.
pub(crate) fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    let given = headers.get(REQUEST_ID);
    given.filter(|id| is_good(id.as_bytes()))
}

/// Whether what a client calls its request may stand in logs and answers.
pub(crate) fn is_good(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(is_plain)
}

/// A name that no other request has, short of a coincidence.
pub(crate) fn next() -> HeaderValue {
    thread_local! {
        /// Begins anywhere, another place for each thread and process.
        static NEXT: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    let number = NEXT.get();
    NEXT.set(number.wrapping_add(1));
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
    HeaderValue::from_bytes(&digits).expect("hexadecimal digits are a good value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_are_good() {
        let (a, b) = (next(), next());
        assert_ne!(a, b);
        assert!(is_good(a.as_bytes()) && a.len() == 16);
        for bad in [
            &b""[..],
            b"a b",
            b"a\"b",
            b"a\x1b",
            "ä".as_bytes(),
            &[b'a'; 129],
        ] {
            assert!(!is_good(bad), "{bad:?}");
        }
    }
}
