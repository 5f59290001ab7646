//! The files of TLS on a listener.

use std::path::PathBuf;

use fluxgate_core::yaml::{Faults, Node};

use super::{read, tree};

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

impl Tls {
    /// Reads a certificate and its key.
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let [cert, key] = node.fields("`tls`", ["cert", "key"], faults);
        Self::from_parts(node, [cert, key, None], before, faults)
    }

    /// Reads a certificate, its key and perhaps the authorities of client certificates.
    pub(super) fn read_with_clients(node: &Node, faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let parts = node.fields("`tls`", ["cert", "key", "client_ca"], faults);
        Self::from_parts(node, parts, before, faults)
    }

    fn from_parts(
        node: &Node,
        [cert, key, client_ca]: [Option<&Node>; 3],
        faults_before: usize,
        faults: &mut Faults,
    ) -> Option<Self> {
        if faults.count() == faults_before && (cert.is_none() || key.is_none()) {
            faults.add(node.position, "`tls` needs `cert` and `key`");
        }
        let cert = read::path(cert, "`cert`", faults);
        let key = read::path(key, "`key`", faults);
        Some(Self {
            client_ca: read::path(client_ca, "`client_ca`", faults),
            cert: cert?,
            key: key?,
        })
    }

    pub(super) fn node(&self) -> Node {
        tree::map([
            ("cert", Some(tree::path(&self.cert))),
            ("key", Some(tree::path(&self.key))),
            ("client_ca", self.client_ca.as_deref().map(tree::path)),
        ])
    }
}
