//! The listeners to open.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use fluxgate_core::yaml::{Faults, Node, Value};
use fluxgate_http::server::Listener;

use super::section::Section;
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

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
    /// The authorities of client certificates, if clients need one.
    pub client_ca: Option<PathBuf>,
}

impl Listen {
    /// Returns the number of listeners.
    pub fn count(&self) -> usize {
        let configured = Listener::ALL.into_iter();
        configured.filter_map(|listener| self.of(listener)).count()
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

    /// Reads the section of a config, and nothing else.
    pub(super) fn of_tree(root: &Node, faults: &mut Faults) -> Self {
        let listen = tree::child(root, "listen").cloned();
        let only = tree::map(listen.map(|node| ("listen", node)));
        Self::read(&mut Section::read(&only, "a config", &["listen"], faults))
    }

    pub(super) fn read(root: &mut Section<'_, '_>) -> Self {
        const NAMES: &[&str] = &["gateway", "api", "grpc", "resp"];
        root.section("listen", NAMES, |section| {
            let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
            let mut endpoint = |name: &'static str| {
                let (at, endpoint) = Endpoint::read(section, name)?;
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
                    section.fault(at, fault);
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
        })
    }
}

impl Endpoint {
    /// Reads an address, or a mapping of an address and TLS. Returns the node of the address
    /// as well.
    fn read<'n>(listen: &mut Section<'n, '_>, name: &'static str) -> Option<(&'n Node, Self)> {
        let node = listen.get(name)?;
        if !matches!(node.value, Value::Map(_)) {
            let address = read_address(node, name, listen.faults)?;
            listen.show(name, tree::text(address.to_string()));
            return Some((node, Self { address, tls: None }));
        }
        let what = format!("`listen.{name}`");
        let mut section = Section::read(node, &what, &["address", "tls"], listen.faults);
        let tls = Tls::read(&mut section, &["cert", "key", "client_ca"]);
        let Some(at) = section.get("address") else {
            section.missing(format!("{what} needs an `address`"));
            return None;
        };
        let address = read_address(at, name, section.faults)?;
        let shown = tree::text(address.to_string());
        if tls.is_some() {
            section.show("address", shown);
            let shown = section.into_node();
            listen.show(name, shown);
        } else {
            listen.show(name, shown);
        }
        Some((at, Self { address, tls }))
    }
}

fn read_address(node: &Node, name: &str, faults: &mut Faults) -> Option<SocketAddr> {
    let address = node.as_text().and_then(parse);
    if address.is_none() {
        let what = format!("`{name}` must be an address and a port");
        let example = "such as \"127.0.0.1:8080\", \"[::1]:8080\" or \"localhost:8080\"";
        let every = "\":8080\" listens on every address";
        faults.add(node.position, format!("{what}, {example}; {every}"));
    }
    address
}

impl Tls {
    /// Reads the certificate of a listener, its key and perhaps the authorities of client
    /// certificates.
    pub(super) fn read(
        section: &mut Section<'_, '_>,
        fields: &'static [&'static str],
    ) -> Option<Self> {
        let tls = section.optional_section("tls", fields, |section| {
            if section.get("cert").is_none() || section.get("key").is_none() {
                section.missing("`tls` needs `cert` and `key`");
            }
            let (cert, key) = (section.path("cert"), section.path("key"));
            let allows_clients = fields.contains(&"client_ca");
            let client_ca = allows_clients.then(|| section.path("client_ca"));
            Some(Self {
                cert: cert?,
                key: key?,
                client_ca: client_ca.flatten(),
            })
        });
        tls.flatten()
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
