//! `X-Forwarded-For`: addresses with commas between them.

use std::net::{IpAddr, Ipv6Addr};

/// The hops of a line, the last first; `None` for what is no address.
pub(super) fn from_right(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    let parts = line.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    // A list may hold empty elements, which say nothing (RFC 9110, 5.6.1).
    parts.filter(|part| !part.is_empty()).map(parse)
}

/// The same of [`parse`], and with a port that is not told: `1.2.3.4:_x`.
pub(super) fn parse_node(text: &[u8]) -> Option<IpAddr> {
    let colon = text.iter().rposition(|byte| *byte == b':');
    let is_hidden = |port: &[u8]| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        port.len() > 1 && port[0] == b'_' && port.iter().all(is_plain)
    };
    match colon {
        Some(at) if is_hidden(&text[at + 1..]) => parse(&text[..at]),
        _ => parse(text),
    }
}

/// `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]` or `[::1]:80`, as it counts: an
/// IPv4-mapped one as IPv4.
pub(super) fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let port_is_good = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            let address: Ipv6Addr = address.parse().ok()?;
            port_is_good.then_some(IpAddr::V6(address))?
        }
        None => match text.split_once(':') {
            // One colon only: an IPv4 address with a port.
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
