//! Headers with the client address, from trusted and other peers.

use std::net::IpAddr;

use fluxgate_http::{ClientIpSource, RequestHead, TrustedProxies};
use ipnet::IpNet;

const UNTRUSTED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));
const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// Reads the client address from a header. The first byte chooses the header, the rest are
/// its lines. An untrusted peer is always the client itself, and an address from a trusted
/// proxy is in the header.
pub fn check(bytes: &[u8]) {
    crate::telemetry::trace_context::fuzz::traceparent(bytes);
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let (source, own) = match first {
        b'f' => (ClientIpSource::Forwarded, &b"for=203.0.113.9"[..]),
        b'c' => (
            ClientIpSource::header("CF-Connecting-IP"),
            &b"203.0.113.9"[..],
        ),
        _ => (ClientIpSource::XForwardedFor, &b"203.0.113.9"[..]),
    };
    let lines: Vec<_> = rest.split(|byte| *byte == b'\n').collect();
    let client_of = |peer, lines: &[&[u8]]| {
        let head = Lines(source.header_name(), lines);
        let found = trusted().client_ip(Some(peer), &source, &head);
        found.expect("the peer is known")
    };
    assert_eq!(client_of(UNTRUSTED, &lines), UNTRUSTED);
    let found = client_of(PROXY, &lines);
    assert!(
        found == PROXY || lines.iter().any(|line| contains(line, found)),
        "{found}"
    );
    // The address that the trusted proxy appended counts, whatever precedes it.
    let with_own = [&lines[..], &[own]].concat();
    assert_eq!(client_of(PROXY, &with_own).to_string(), "203.0.113.9");
    let mut same_line = lines.last().map_or_else(Vec::new, |line| line.to_vec());
    same_line.extend_from_slice(b", ");
    same_line.extend_from_slice(own);
    assert_eq!(client_of(PROXY, &[&same_line]).to_string(), "203.0.113.9");
}

fn trusted() -> TrustedProxies {
    let networks = ["10.0.0.0/8", "fd00::/8", "::ffff:192.168.0.0/112"];
    let network = |text: &str| text.parse::<IpNet>().expect("these are networks");
    TrustedProxies::new(networks.map(network))
}

/// A request with the lines of only one header.
struct Lines<'a>(&'a str, &'a [&'a [u8]]);

impl RequestHead for Lines<'_> {
    fn method(&self) -> &str {
        "GET"
    }

    fn query(&self) -> Option<&str> {
        None
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let lines = if name == self.0 { self.1 } else { &[] };
        lines.iter().copied()
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.1.iter().map(|line| (self.0, *line))
    }
}

/// Returns whether a line contains an address in any spelling. (In a quoted text, any
/// character may be escaped by a backslash.)
fn contains(line: &[u8], address: IpAddr) -> bool {
    let text = String::from_utf8_lossy(line).replace('\\', "");
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
    let mut parts = text.split(|c| !is_part(c));
    parts.any(|part| {
        let without_port = part.rsplit_once(':').map_or(part, |(host, _)| host);
        let parsed = [part, without_port].map(|text| text.parse::<IpAddr>());
        { parsed.into_iter().flatten() }.any(|it| it.to_canonical() == address)
    })
}
