//! The listeners to open.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fluxgate_core::internals::yaml::{Faults, Node};

use super::tree;

/// The addresses of the listeners. A listener without an address is not opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// The reverse proxy.
    pub gateway: Option<SocketAddr>,
    /// Decisions over HTTP.
    pub api: Option<SocketAddr>,
    /// Decisions over gRPC.
    pub grpc: Option<SocketAddr>,
    /// Decisions over the Redis protocol.
    pub resp: Option<SocketAddr>,
}

const NAMES: [&str; 4] = ["gateway", "api", "grpc", "resp"];

impl Listen {
    /// Returns the number of listeners.
    pub fn count(&self) -> usize {
        self.all().iter().flatten().count()
    }

    /// Returns whether no listener has an address.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn all(&self) -> [Option<SocketAddr>; 4] {
        [self.gateway, self.api, self.grpc, self.resp]
    }

    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        let nodes = node.map_or([None; 4], |node| node.fields("`listen`", NAMES, faults));
        let mut read: [Option<SocketAddr>; 4] = [None; 4];
        for (index, node) in nodes.into_iter().enumerate() {
            let (Some(node), name) = (node, NAMES[index]) else {
                continue;
            };
            let Some(address) = node.as_text().and_then(parse) else {
                let what = format!("`{name}` must be an address and a port");
                let example = "such as \"127.0.0.1:8080\", \"[::1]:8080\" or \"localhost:8080\"";
                let every = "\":8080\" listens on every address";
                faults.add(node.position, format!("{what}, {example}; {every}"));
                continue;
            };
            let overlapping = read.iter().position(|other| {
                let other = *other;
                other.is_some_and(|other| includes(address, other) || includes(other, address))
            });
            if let Some(index_of_other) = overlapping {
                let other = NAMES[index_of_other];
                let fault = match read[index_of_other] == Some(address) {
                    true => format!("`{name}` has the same address as `{other}`"),
                    false => format!(
                        "`{name}` has the same port as `{other}`, and one of them listens on \
                         every address"
                    ),
                };
                faults.add(node.position, fault);
            }
            read[index] = Some(address);
        }
        let [gateway, api, grpc, resp] = read;
        Self {
            gateway,
            api,
            grpc,
            resp,
        }
    }

    pub(super) fn node(&self) -> Option<Node> {
        let shown = self
            .all()
            .map(|address| address.map(|at| tree::text(at.to_string())));
        (!self.is_empty()).then(|| tree::map(NAMES.into_iter().zip(shown)))
    }
}

/// Parses `IP:PORT`, `localhost:PORT`, or `:PORT` for every address of the machine.
fn parse(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (host, port) = text.rsplit_once(':')?;
    // `parse` would also accept a sign.
    let port = port.parse().ok().filter(|_| !port.starts_with('+'))?;
    if host.is_empty() {
        Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
    } else if host.eq_ignore_ascii_case("localhost") {
        // Not resolved: validation must not depend on the machine.
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    } else {
        None
    }
}

/// Returns whether a listener on `a` also receives the connections to `b`. The unspecified
/// IPv6 address includes those of IPv4. For port 0, the system assigns each listener a port
/// of its own.
fn includes(a: SocketAddr, b: SocketAddr) -> bool {
    let includes_ip = a.ip() == b.ip() || a.ip().is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    includes_ip && a.port() == b.port() && a.port() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_localhost_or_left_out() {
        let parsed = |text| parse(text).map(|address| address.to_string());
        for (text, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            ("localhost:80", "127.0.0.1:80"),
            ("LocalHost:0", "127.0.0.1:0"),
            (":80", "[::]:80"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            ":",
            "80",
            ":+80",
            ":-1",
            ":65536",
            ": 80",
            "localhost",
            "localhost:",
            "::1:80",
            "example.com:80",
            "*:80",
            "localhost.:80",
            "127.0.0.1",
            "[localhost]:80",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn the_unspecified_address_includes_others() {
        let includes = |a: &str, b: &str| includes(a.parse().unwrap(), b.parse().unwrap());
        assert!(includes("[::]:1", "127.0.0.1:1"));
        assert!(includes("[::]:1", "0.0.0.0:1"));
        assert!(includes("0.0.0.0:1", "127.0.0.1:1"));
        assert!(!includes("0.0.0.0:1", "[::1]:1"));
        assert!(!includes("127.0.0.1:1", "[::]:1"));
        assert!(!includes("[::]:1", "127.0.0.1:2"));
        assert!(!includes("[::]:0", "[::]:0"));
    }
}
