//! The listeners to open.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fluxgate_core::yaml::{Faults, Node, Value};
use fluxgate_http::server::Listener;

use super::read::Section;
use super::tls::Tls;
use super::tree;

/// The listeners. One that is not configured is not opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// The reverse proxy.
    pub gateway: Option<Endpoint>,
    /// Decisions over HTTP.
    pub api: Option<Endpoint>,
    /// Decisions over gRPC.
    pub grpc: Option<Endpoint>,
    /// Decisions over the Redis protocol.
    pub resp: Option<Endpoint>,
}

/// Where a listener listens, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: SocketAddr,
    /// The certificate, if it uses TLS. The gateway may have one in its own section instead.
    pub tls: Option<Tls>,
}

const NAMES: [&str; 4] = ["gateway", "api", "grpc", "resp"];

impl Listen {
    /// Returns the number of listeners.
    pub fn count(&self) -> usize {
        self.all().iter().flatten().count()
    }

    /// Returns whether no listener is configured.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns where a listener listens.
    pub(crate) fn of(&self, listener: Listener) -> Option<&Endpoint> {
        let endpoint = match listener {
            Listener::Gateway => &self.gateway,
            Listener::Api => &self.api,
            Listener::Grpc => &self.grpc,
            Listener::Resp => &self.resp,
        };
        endpoint.as_ref()
    }

    fn all(&self) -> [Option<&Endpoint>; 4] {
        [&self.gateway, &self.api, &self.grpc, &self.resp].map(Option::as_ref)
    }

    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        let section = Section::read(node, "`listen`", &NAMES, faults);
        let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
        let mut endpoint = |name: &'static str| {
            let (at, endpoint) = Endpoint::read(section.get(name)?, name, faults)?;
            let address = endpoint.address;
            let overlapping = taken
                .iter()
                .find(|(_, other)| includes(address, *other) || includes(*other, address));
            if let Some((other, taken)) = overlapping {
                let fault = if *taken == address {
                    format!("`{name}` has the same address as `{other}`")
                } else {
                    format!(
                        "`{name}` has the same port as `{other}`, and one of them listens on \
                         every address"
                    )
                };
                faults.add(at.position, fault);
            }
            taken.push((name, address));
            Some(endpoint)
        };
        Self {
            gateway: endpoint("gateway"),
            api: endpoint("api"),
            grpc: endpoint("grpc"),
            resp: endpoint("resp"),
        }
    }

    pub(super) fn node(&self) -> Option<Node> {
        let shown = self.all().map(|endpoint| endpoint.map(Endpoint::node));
        (!self.is_empty()).then(|| tree::map(NAMES.into_iter().zip(shown)))
    }
}

impl Endpoint {
    /// Reads an address, or a mapping of an address and TLS. Returns the node of the address
    /// as well.
    fn read<'n>(node: &'n Node, name: &str, faults: &mut Faults) -> Option<(&'n Node, Self)> {
        let (at, tls) = match &node.value {
            Value::Map(_) => {
                let what = format!("`listen.{name}`");
                let before = faults.count();
                let section = Section::read(node, &what, &["address", "tls"], faults);
                let address = section.get("address");
                if address.is_none() && faults.count() == before {
                    faults.add(node.position, format!("{what} needs an `address`"));
                }
                (address, section.get("tls"))
            }
            _ => (Some(node), None),
        };
        let tls = tls.and_then(|node| Tls::read_with_clients(node, faults));
        let at = at?;
        let Some(address) = at.as_text().and_then(parse) else {
            let what = format!("`{name}` must be an address and a port");
            let example = "such as \"127.0.0.1:8080\", \"[::1]:8080\" or \"localhost:8080\"";
            let every = "\":8080\" listens on every address";
            faults.add(at.position, format!("{what}, {example}; {every}"));
            return None;
        };
        Some((at, Self { address, tls }))
    }

    fn node(&self) -> Node {
        let address = tree::text(self.address.to_string());
        match &self.tls {
            None => address,
            Some(tls) => tree::map([("address", Some(address)), ("tls", Some(tls.node()))]),
        }
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
