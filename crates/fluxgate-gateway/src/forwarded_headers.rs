//! The headers that report the origin of a request to upstreams.

use fluxgate_http::RequestHead;

use crate::received_request::ConnectionInfo;

/// The origin of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardedHeaders<'a> {
    pub(crate) client: &'a ConnectionInfo,
    /// Whether the peer is a trusted proxy: its headers are kept and added to. Otherwise they
    /// are replaced.
    pub(crate) is_trusted: bool,
    /// The host of the request, perhaps with a port; empty if it is unknown.
    pub(crate) host: &'a str,
}

const FOR: &str = "x-forwarded-for";
const PROTO: &str = "x-forwarded-proto";
const HOST: &str = "x-forwarded-host";
const PORT: &str = "x-forwarded-port";
const FORWARDED: &str = "forwarded";
/// Some frameworks serve the path in these headers instead of the one that was counted.
const OTHER_TARGETS: [&str; 2] = ["x-original-url", "x-rewrite-url"];

impl ForwardedHeaders<'_> {
    /// Passes each header to `write`: its name, in lower case, and its value. `text` is
    /// scratch space.
    pub(crate) fn write(
        &self,
        head: &impl RequestHead,
        text: &mut Vec<u8>,
        mut write: impl FnMut(&'static str, &[u8]),
    ) {
        let ConnectionInfo {
            peer,
            peer_text,
            port,
            is_secure,
        } = self.client;
        let proto = if *is_secure { "https" } else { "http" };
        self.add(head, FOR, text, |text| push(text, peer_text));
        write(FOR, text);
        self.keep(head, PROTO, text, |text| push(text, proto));
        write(PROTO, text);
        self.keep(head, HOST, text, |text| push(text, self.host));
        if !text.is_empty() {
            write(HOST, text);
        }
        self.keep(head, PORT, text, |text| {
            push(text, itoa::Buffer::new().format(*port));
        });
        write(PORT, text);
        self.add(head, FORWARDED, text, |text| {
            let is_v6 = peer.ip().to_canonical().is_ipv6();
            push(text, if is_v6 { "for=\"[" } else { "for=" });
            push(text, peer_text);
            push(text, if is_v6 { "]\"" } else { "" });
            if !self.host.is_empty() {
                push(text, ";host=\"");
                push(text, self.host);
                push(text, "\"");
            }
            push(text, ";proto=");
            push(text, proto);
        });
        write(FORWARDED, text);
    }

    /// Writes the values of a trusted peer, and then our own.
    fn add(
        &self,
        head: &impl RequestHead,
        name: &str,
        text: &mut Vec<u8>,
        own: impl FnOnce(&mut Vec<u8>),
    ) {
        text.clear();
        if self.is_trusted {
            for line in head.header_lines(name).filter(|line| !line.is_empty()) {
                text.extend_from_slice(line);
                push(text, ", ");
            }
        }
        own(text);
    }

    /// Writes the value of a trusted peer, or else our own.
    fn keep(
        &self,
        head: &impl RequestHead,
        name: &str,
        text: &mut Vec<u8>,
        own: impl FnOnce(&mut Vec<u8>),
    ) {
        text.clear();
        let given = if self.is_trusted {
            head.header_lines(name).next()
        } else {
            None
        };
        match given.filter(|given| !given.is_empty()) {
            Some(given) => text.extend_from_slice(given),
            None => own(text),
        }
    }
}

fn push(text: &mut Vec<u8>, more: &str) {
    text.extend_from_slice(more.as_bytes());
}

/// Returns whether a header reports the origin of a request, or replaces its target, and is not
/// forwarded as it is. Those of an untrusted peer are all removed; those of a trusted one are
/// kept, unless they are written anew or replace the target: not even a proxy may have another
/// path served than the one that was counted.
pub(crate) fn is_forwarding_header(name: &str, is_trusted: bool) -> bool {
    const WRITTEN: [&str; 5] = [FOR, PROTO, HOST, PORT, FORWARDED];
    const PREFIX: &str = "x-forwarded-";
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let begins = || {
        let start = name.get(..PREFIX.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
    };
    let is_claim = || begins() || is("x-real-ip");
    let mut removed = WRITTEN.iter().chain(&OTHER_TARGETS);
    removed.any(|known| is(known)) || (!is_trusted && is_claim())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn written(is_trusted: bool, peer: &str, given: &[(&str, &str)]) -> Vec<String> {
        let mut request = http::Request::builder().uri("/");
        for (name, value) in given {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let peer = SocketAddr::new(peer.parse().unwrap(), 4000);
        let forwarded = ForwardedHeaders {
            client: &ConnectionInfo::new(peer, 8443, true),
            is_trusted,
            host: "a.example:1",
        };
        let mut lines = Vec::new();
        forwarded.write(&parts, &mut Vec::new(), |name, value| {
            lines.push(format!("{name}: {}", String::from_utf8_lossy(value)));
        });
        lines
    }

    const CLAIMS: [(&str, &str); 6] = [
        ("X-Forwarded-For", "1.1.1.1, 2.2.2.2"),
        ("X-Forwarded-For", "3.3.3.3"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "b.example"),
        ("X-Forwarded-Port", "80"),
        ("Forwarded", "for=1.1.1.1"),
    ];

    #[test]
    fn claims_of_untrusted_peers_are_replaced() {
        let known = [
            "x-forwarded-for: 9.9.9.9",
            "x-forwarded-proto: https",
            "x-forwarded-host: a.example:1",
            "x-forwarded-port: 8443",
            "forwarded: for=9.9.9.9;host=\"a.example:1\";proto=https",
        ];
        assert_eq!(written(false, "9.9.9.9", &CLAIMS), known);
        assert_eq!(written(true, "::ffff:9.9.9.9", &[]), known);
    }

    #[test]
    fn headers_of_trusted_proxies_are_kept_and_added_to() {
        assert_eq!(
            written(true, "fd00::1", &CLAIMS),
            [
                "x-forwarded-for: 1.1.1.1, 2.2.2.2, 3.3.3.3, fd00::1",
                "x-forwarded-proto: http",
                "x-forwarded-host: b.example",
                "x-forwarded-port: 80",
                "forwarded: for=1.1.1.1, for=\"[fd00::1]\";host=\"a.example:1\";proto=https",
            ]
        );
    }

    #[test]
    fn only_unwritten_headers_of_trusted_proxies_are_forwarded() {
        for (name, untrusted, trusted) in [
            ("X-Forwarded-For", true, true),
            ("forwarded", true, true),
            ("x-forwarded-prefix", true, false),
            ("X-Real-IP", true, false),
            ("X-Original-URL", true, true),
            ("x-rewrite-url", true, true),
            ("x-original-urls", false, false),
            ("x-forwarded", false, false),
            ("host", false, false),
        ] {
            assert_eq!(is_forwarding_header(name, false), untrusted, "{name}");
            assert_eq!(is_forwarding_header(name, true), trusted, "{name}");
        }
    }
}
