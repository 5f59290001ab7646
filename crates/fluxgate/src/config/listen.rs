//! The listeners to open.

use std::net::SocketAddr;

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
            let address = node.as_text().and_then(|text| text.parse().ok());
            let Some(address) = address else {
                let what = format!("`{name}` must be an address and a port");
                let example = "such as \"127.0.0.1:8080\" or \"[::1]:8080\"";
                faults.add(node.position, format!("{what}, {example}"));
                continue;
            };
            // For port 0, the system assigns each listener a port of its own.
            let same = read.iter().position(|other| *other == Some(address));
            if let Some(other) = same.filter(|_| address.port() != 0) {
                let other = NAMES[other];
                faults.add(
                    node.position,
                    format!("`{name}` has the same address as `{other}`"),
                );
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
