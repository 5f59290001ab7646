//! `Authorization`, as requests are counted by it.

use std::borrow::Cow;

/// The name of the header, in lower case.
pub const AUTHORIZATION: &str = "authorization";

/// Returns credentials with their scheme in lower case and one space behind it, because servers
/// read `bearer  x` as `Bearer x`. A value without white space has no scheme, and stays as it is.
///
/// ```
/// use fluxgate_core::key::counted_credentials;
///
/// assert_eq!(*counted_credentials(b"BEARER \t aB"), *b"bearer aB");
/// assert_eq!(*counted_credentials(b"Token-Only"), *b"Token-Only");
/// ```
pub fn counted_credentials(value: &[u8]) -> Cow<'_, [u8]> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(end) = value.iter().position(is_space) else {
        return Cow::Borrowed(value);
    };
    let (scheme, rest) = value.split_at(end);
    let credentials = rest.trim_ascii_start();
    let is_counted = !scheme.iter().any(u8::is_ascii_uppercase)
        && rest.len() == credentials.len() + 1
        && rest.starts_with(b" ");
    if is_counted {
        return Cow::Borrowed(value);
    }
    let mut counted = scheme.to_ascii_lowercase();
    counted.push(b' ');
    counted.extend_from_slice(credentials);
    Cow::Owned(counted)
}
