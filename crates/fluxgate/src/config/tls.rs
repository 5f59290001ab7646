//! The files of TLS on a listener.

use std::path::PathBuf;

use fluxgate_core::yaml::{Faults, Node};

use super::read::Section;
use super::tree;

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
        let section = Section::read(node, "`tls`", &["cert", "key"], faults);
        let is_valid = faults.count() == before;
        let (cert, key) = read_certificate(node, &section, is_valid, faults)?;
        Some(Self {
            cert,
            key,
            client_ca: None,
        })
    }

    /// Reads a certificate, its key and perhaps the authorities of client certificates.
    pub(super) fn read_with_clients(node: &Node, faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let section = Section::read(node, "`tls`", &["cert", "key", "client_ca"], faults);
        let is_valid = faults.count() == before;
        let certificate = read_certificate(node, &section, is_valid, faults);
        let client_ca = section.path("client_ca", faults);
        let (cert, key) = certificate?;
        Some(Self {
            cert,
            key,
            client_ca,
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

/// Reads the files of a certificate and its key. `is_valid` is whether the section has no fault
/// so far.
fn read_certificate(
    node: &Node,
    section: &Section<'_>,
    is_valid: bool,
    faults: &mut Faults,
) -> Option<(PathBuf, PathBuf)> {
    if is_valid && (section.get("cert").is_none() || section.get("key").is_none()) {
        faults.add(node.position, "`tls` needs `cert` and `key`");
    }
    let cert = section.path("cert", faults);
    let key = section.path("key", faults);
    cert.zip(key)
}
