//! The client's address: the peer of the connection, or the address that trusted proxies
//! report.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use smallvec::SmallVec;

use crate::request_head::RequestHead;

/// The header in which proxies report the client's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientIpSource {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// Another header in the form of `X-Forwarded-For`, such as `X-Real-IP`. The name must be in
    /// lower case: [`ClientIpSource::header`] takes it in any case.
    Header(Box<str>),
}

impl ClientIpSource {
    /// Creates the source for the header of this name, in any case.
    pub fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match &*name {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Header(name.into()),
        }
    }

    /// Returns the name of the header in lower case.
    pub fn header_name(&self) -> &str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::Header(name) => name,
        }
    }
}

/// The headers in which proxies report the client's address, in order of precedence: the first
/// that a request has counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIpSources {
    first: ClientIpSource,
    others: Vec<ClientIpSource>,
}

impl ClientIpSources {
    /// Returns the headers.
    pub fn iter(&self) -> impl Iterator<Item = &ClientIpSource> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Returns the names of the headers in lower case.
    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(ClientIpSource::header_name)
    }

    /// Returns the header that counts for a request.
    pub(crate) fn of(&self, head: &impl RequestHead) -> &ClientIpSource {
        if self.others.is_empty() {
            return &self.first;
        }
        let is_present = |source: &&ClientIpSource| {
            let mut lines = head.header_lines(source.header_name());
            lines.any(|line| !line.is_empty())
        };
        self.iter().find(is_present).unwrap_or(&self.first)
    }
}

impl Default for ClientIpSources {
    fn default() -> Self {
        ClientIpSource::default().into()
    }
}

impl From<ClientIpSource> for ClientIpSources {
    fn from(first: ClientIpSource) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }
}

/// Without any, the default counts.
impl FromIterator<ClientIpSource> for ClientIpSources {
    fn from_iter<I: IntoIterator<Item = ClientIpSource>>(sources: I) -> Self {
        let mut sources = sources.into_iter();
        Self {
            first: sources.next().unwrap_or_default(),
            others: sources.collect(),
        }
    }
}

impl<const N: usize> From<[ClientIpSource; N]> for ClientIpSources {
    fn from(sources: [ClientIpSource; N]) -> Self {
        sources.into_iter().collect()
    }
}

/// The proxies whose reports about the client's address are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Box<[IpNet]>);

impl TrustedProxies {
    /// Trusts every address in these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().map(canonical).collect())
    }

    /// Returns whether this peer is trusted.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.contains(peer.to_canonical())
    }

    /// `address` is canonical.
    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Returns the client's address.
    ///
    /// It is the peer's, unless the peer is trusted. Then it is the rightmost address in the
    /// header that is not trusted, or the leftmost if all are. An entry that is not an address
    /// ends the search at the entry to its right.
    pub fn client_ip(
        &self,
        peer: Option<IpAddr>,
        source: &ClientIpSource,
        head: &impl RequestHead,
    ) -> Option<IpAddr> {
        let peer = peer?.to_canonical();
        if !self.contains(peer) {
            return Some(peer);
        }
        Some(self.forwarded_client_ip(source, head).unwrap_or(peer))
    }

    /// Returns the client's address as reported by a peer that is trusted whatever its own
    /// address, or `None` if it reports none.
    pub fn forwarded_client_ip(
        &self,
        source: &ClientIpSource,
        head: &impl RequestHead,
    ) -> Option<IpAddr> {
        let lines: SmallVec<[&[u8]; 4]> = head.header_lines(source.header_name()).collect();
        let lines = lines.iter().rev();
        match source {
            ClientIpSource::Forwarded => {
                self.first_untrusted(lines.flat_map(|line| forwarded(line)))
            }
            ClientIpSource::XForwardedFor | ClientIpSource::Header(_) => {
                self.first_untrusted(lines.flat_map(|line| x_forwarded_for(line)))
            }
        }
    }

    fn first_untrusted(&self, hops: impl Iterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
        let mut last = None;
        for hop in hops {
            let Some(hop) = hop else {
                break;
            };
            last = Some(hop);
            if !self.contains(hop) {
                break;
            }
        }
        last
    }
}

/// Why a text names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// It is neither a network nor an address.
    #[error("`{0}` is not a network such as 10.0.0.0/8 or fd00::/8, nor an address")]
    Invalid(String),
}

/// Parses a network such as `10.0.0.0/8`, or a single address.
pub fn parse_network(text: &str) -> Result<IpNet, NetworkError> {
    let address = || text.parse::<IpAddr>().map(IpNet::from).ok();
    let network = text.parse().ok().or_else(address);
    network.ok_or_else(|| NetworkError::Invalid(text.into()))
}

/// Turns a network of IPv4-mapped addresses into one of IPv4, as `to_canonical` does with
/// addresses.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let v4 = mapped.addr().to_ipv4_mapped();
    let bits = mapped.prefix_len().checked_sub(MAPPED_BITS);
    let v4 = v4
        .zip(bits)
        .and_then(|(v4, bits)| Ipv4Net::new(v4, bits).ok());
    v4.map_or(network, IpNet::V4)
}

/// Returns the hops of an `X-Forwarded-For` line, the last first. An entry that is not an
/// address is `None`.
fn x_forwarded_for(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    let entries = line.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    // Lists may hold empty elements (RFC 9110, 5.6.1).
    entries.filter(|entry| !entry.is_empty()).map(parse_address)
}

/// Returns the hops of a `Forwarded` line (RFC 7239), the last first. An entry that is not an
/// address is `None`.
fn forwarded(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
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

/// Splits at separators outside quotes, the last part first. Trusted proxies append at the right
/// end, so a quote that a client leaves open further to the left cannot swallow their entries.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_header_that_is_present_counts() {
        let sources = ClientIpSources::from([
            ClientIpSource::header("CF-Connecting-IP"),
            ClientIpSource::XForwardedFor,
        ]);
        for (lines, expected) in [
            (&[][..], "cf-connecting-ip"),
            (&[("x-forwarded-for", "1.1.1.1")], "x-forwarded-for"),
            (
                &[("cf-connecting-ip", ""), ("x-forwarded-for", "1.1.1.1")],
                "x-forwarded-for",
            ),
            (
                &[("x-forwarded-for", "1.1.1.1"), ("cf-connecting-ip", "x")],
                "cf-connecting-ip",
            ),
        ] {
            let request = lines
                .iter()
                .fold(http::Request::get("/"), |request, (name, value)| {
                    request.header(*name, *value)
                });
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(sources.of(&head).header_name(), expected, "{lines:?}");
        }
        assert_eq!(
            ClientIpSources::default(),
            [ClientIpSource::XForwardedFor].into()
        );
    }
}
