//! The files of TLS on a listener.

use std::path::PathBuf;

use super::section::Section;

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
