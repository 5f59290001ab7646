//! What upstreams are told of where a request came from.

use std::net::IpAddr;

use fluxgate_tower::RequestHead;

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded<'a> {
    /// Who sent it to us.
    pub(crate) peer: IpAddr,
    /// Whether what the peer says of this is kept and added to. Else it is
    /// replaced by what we know.
    pub(crate) is_trusted: bool,
    /// Whether it came over TLS.
    pub(crate) is_secure: bool,
    /// The host that it is for, perhaps with a port; empty if nobody said it.
    pub(crate) host: &'a str,
    /// The port that it came in at.
    pub(crate) port: u16,
}

const FOR: &str = "x-forwarded-for";
const PROTO: &str = "x-forwarded-proto";
const HOST: &str = "x-forwarded-host";
const PORT: &str = "x-forwarded-port";
const FORWARDED: &str = "forwarded";

impl Forwarded<'_> {
    /// Tells the headers: for each its name, in lower case, and its value.
    /// `text` is room to work in.
    pub(crate) fn tell(
        &self,
        head: &impl RequestHead,
        text: &mut Vec<u8>,
        mut told: impl FnMut(&'static str, &[u8]),
    ) {
        let proto = if self.is_secure { "https" } else { "http" };
        self.add(head, FOR, text, |text| push_address(text, self.peer));
        told(FOR, text);
        self.keep(head, PROTO, text, |text| push(text, proto));
        told(PROTO, text);
        self.keep(head, HOST, text, |text| push(text, self.host));
        if !text.is_empty() {
            told(HOST, text);
        }
        self.keep(head, PORT, text, |text| push_number(text, self.port));
        told(PORT, text);
        self.add(head, FORWARDED, text, |text| {
            let is_v6 = self.peer.to_canonical().is_ipv6();
            push(text, if is_v6 { "for=\"[" } else { "for=" });
            push_address(text, self.peer);
            push(text, if is_v6 { "]\"" } else { "" });
            if !self.host.is_empty() {
                push(text, ";host=\"");
                push(text, self.host);
                push(text, "\"");
            }
            push(text, ";proto=");
            push(text, proto);
        });
        told(FORWARDED, text);
    }

    /// What a trusted peer says, and then what we know.
    fn add(
        &self,
        head: &impl RequestHead,
        name: &str,
        text: &mut Vec<u8>,
        known: impl FnOnce(&mut Vec<u8>),
    ) {
        text.clear();
        if self.is_trusted {
            for line in head.header_lines(name).filter(|line| !line.is_empty()) {
                text.extend_from_slice(line);
                push(text, ", ");
            }
        }
        known(text);
    }

    /// What a trusted peer says, or else what we know.
    fn keep(
        &self,
        head: &impl RequestHead,
        name: &str,
        text: &mut Vec<u8>,
        known: impl FnOnce(&mut Vec<u8>),
    ) {
        text.clear();
        let given = match self.is_trusted {
            true => head.header_lines(name).next(),
            false => None,
        };
        match given.filter(|given| !given.is_empty()) {
            Some(given) => text.extend_from_slice(given),
            None => known(text),
        }
    }
}

fn push(text: &mut Vec<u8>, more: &str) {
    text.extend_from_slice(more.as_bytes());
}

fn push_number(text: &mut Vec<u8>, number: u16) {
    push(text, itoa::Buffer::new().format(number));
}

/// Without the machinery of formatting, which takes longer than all the rest.
fn push_address(text: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                push(text, if index > 0 { "." } else { "" });
                push_number(text, octet.into());
            }
        }
        IpAddr::V6(address) => push(text, &address.to_string()),
    }
}

/// Whether a header says where a request came from, so that it is not passed on
/// as it came. An untrusted peer must not say anything of the kind; of a trusted
/// one, what is not told anew is kept.
pub(crate) fn is_about_origin(name: &str, is_trusted: bool) -> bool {
    const TOLD: [&str; 5] = [FOR, PROTO, HOST, PORT, FORWARDED];
    const PREFIX: &str = "x-forwarded-";
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let begins = || {
        let start = name.get(..PREFIX.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
    };
    TOLD.iter().any(|known| is(known)) || (!is_trusted && (begins() || is("x-real-ip")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(is_trusted: bool, peer: &str, given: &[(&str, &str)]) -> Vec<String> {
        let mut request = http::Request::builder().uri("/");
        for (name, value) in given {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let forwarded = Forwarded {
            peer: peer.parse().unwrap(),
            is_trusted,
            is_secure: true,
            host: "a.example:1",
            port: 8443,
        };
        let mut lines = Vec::new();
        forwarded.tell(&parts, &mut Vec::new(), |name, value| {
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
    fn what_a_stranger_claims_is_replaced() {
        let known = [
            "x-forwarded-for: 9.9.9.9",
            "x-forwarded-proto: https",
            "x-forwarded-host: a.example:1",
            "x-forwarded-port: 8443",
            "forwarded: for=9.9.9.9;host=\"a.example:1\";proto=https",
        ];
        assert_eq!(told(false, "9.9.9.9", &CLAIMS), known);
        assert_eq!(told(true, "::ffff:9.9.9.9", &[]), known);
    }

    #[test]
    fn what_a_trusted_proxy_says_is_kept_and_added_to() {
        assert_eq!(
            told(true, "fd00::1", &CLAIMS),
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
    fn only_some_of_it_is_passed_on_as_it_came() {
        for (name, untrusted, trusted) in [
            ("X-Forwarded-For", true, true),
            ("forwarded", true, true),
            ("x-forwarded-prefix", true, false),
            ("X-Real-IP", true, false),
            ("x-forwarded", false, false),
            ("host", false, false),
        ] {
            assert_eq!(is_about_origin(name, false), untrusted, "{name}");
            assert_eq!(is_about_origin(name, true), trusted, "{name}");
        }
    }
}
