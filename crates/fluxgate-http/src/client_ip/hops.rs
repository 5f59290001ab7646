//! Parses the hops that `X-Forwarded-For` and `Forwarded` list. `TrustedProxies` walks them.
//!
//! Both parsers read a line from its right end. Trusted proxies append there, so a quote that
//! a client leaves open further to the left cannot swallow their entries.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// Returns the hops of an `X-Forwarded-For` line, the last first. An entry that is not an
/// address is `None`.
pub(super) fn x_forwarded_for(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    let entries = line.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    // Lists may hold empty elements (RFC 9110, 5.6.1).
    entries.filter(|entry| !entry.is_empty()).map(parse_address)
}

/// Returns the hops of a `Forwarded` line (RFC 7239), the last first. An entry that is not an
/// address is `None`.
pub(super) fn forwarded(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    let elements = rsplit_unquoted(line, b',').map(<[u8]>::trim_ascii);
    let elements = elements.filter(|element| !element.is_empty());
    elements.map(|element| parse_node(&for_parameter(element)?))
}

/// Returns the value of `for` in `for=1.2.3.4;proto=http`, or `None` unless there is exactly
/// one and it is well-formed.
fn for_parameter(element: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut found = None;
    for pair in rsplit_unquoted(element, b';') {
        // Pairs may be empty.
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

/// Returns the text of a token or a quoted string.
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

/// Splits at separators outside quotes, the last part first.
fn rsplit_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        for (index, byte) in text.iter().enumerate().rev() {
            if *byte == b'"' && !ends_in_escape(&text[..index]) {
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

/// Returns whether an odd number of backslashes ends the text.
fn ends_in_escape(text: &[u8]) -> bool {
    let backslashes = text.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// Parses an address, which may have an obfuscated port: `1.2.3.4:_x`.
fn parse_node(text: &[u8]) -> Option<IpAddr> {
    let colon = text.iter().rposition(|byte| *byte == b':');
    let is_obfuscated = |port: &[u8]| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        port.len() > 1 && port[0] == b'_' && port.iter().all(is_plain)
    };
    match colon {
        Some(at) if is_obfuscated(&text[at + 1..]) => parse_address(&text[..at]),
        _ => parse_address(text),
    }
}

/// Parses `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]` or `[::1]:80` into a canonical address.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let port_is_good = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            let address: Ipv6Addr = address.parse().ok()?;
            port_is_good.then_some(IpAddr::V6(address))?
        }
        None => match text.split_once(':') {
            // A single colon: an IPv4 address with a port.
            Some((address, port)) if !port.contains(':') => {
                let address = address.parse().ok()?;
                is_port(port).then_some(IpAddr::V4(address))?
            }
            _ => text.parse().ok()?,
        },
    };
    Some(address.to_canonical())
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
