//! `Forwarded`, of RFC 7239.
//!
//! A line is taken apart from its right end: what a proxy that is trusted wrote
//! stands there, and no quote that a client left open further to the left can
//! swallow it.

use std::borrow::Cow;
use std::net::IpAddr;

use super::address;

/// The hops of a line, the last first; `None` for what is no address.
pub(super) fn from_right(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    let elements = split_from_right(line, b',').map(<[u8]>::trim_ascii);
    let elements = elements.filter(|element| !element.is_empty());
    elements.map(|element| address::parse_node(&for_of(element)?))
}

/// The value of `for` in `for=1.2.3.4;proto=http`; `None` if there is not just
/// one that can be read.
fn for_of(element: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut found = None;
    for pair in split_from_right(element, b';') {
        // Nothing may stand between two semicolons.
        if pair.trim_ascii().is_empty() {
            continue;
        }
        let end = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..end], &pair[end + 1..]);
        if !name.trim_ascii().eq_ignore_ascii_case(b"for") {
            continue;
        }
        let value = unquote(value.trim_ascii())?;
        if found.replace(value).is_some() {
            return None;
        }
    }
    found
}

/// What a token or a quoted string stands for.
fn unquote(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(rest) = value.strip_prefix(b"\"") else {
        return (!value.contains(&b'"')).then_some(Cow::Borrowed(value));
    };
    let quoted = rest.strip_suffix(b"\"")?;
    let mut text = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => text.push(*bytes.next()?),
            b'"' => return None,
            other => text.push(*other),
        }
    }
    Some(Cow::Owned(text))
}

/// The parts between separators that stand outside quotes, the last first.
fn split_from_right(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        for (index, byte) in text.iter().enumerate().rev() {
            if *byte == b'"' && !is_escaped(&text[..index]) {
                quoted = !quoted;
            } else if *byte == separator && !quoted {
                rest = Some(&text[..index]);
                return Some(&text[index + 1..]);
            }
        }
        rest = None;
        Some(text)
    })
}

/// Whether what follows this is escaped: an odd number of backslashes is before it.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}
