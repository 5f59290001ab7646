//! TLS for the proxies under load: the same certificate, TLS 1.3 and the same cipher
//! suite for all of them.

use std::path::{Path, PathBuf};

use fluxgate_testkit::Certificates;

use crate::service::TempDir;

/// The only cipher suite that the load generators offer.
pub(crate) const SUITE: &str = "TLS_AES_128_GCM_SHA256";

/// A certificate (ECDSA on P-256) with its key, and what each program needs to use them.
pub(crate) struct Tls {
    certificates: Certificates,
    /// Certificate and key in one file, as HAProxy wants them.
    both: PathBuf,
    /// Settings of OpenSSL for clients that have no option for the cipher suite.
    openssl: PathBuf,
}

impl Tls {
    pub(crate) fn generate(dir: &TempDir) -> Self {
        let certificates = Certificates::generate();
        let files = [certificates.server_cert(), certificates.server_key()];
        let both = dir.file("server-both.pem", files.map(Certificates::read).concat());
        let settings = format!(
            "openssl_conf = conf\n[conf]\nssl_conf = ssl\n[ssl]\nsystem_default = clients\n\
             [clients]\nMinProtocol = TLSv1.3\nCiphersuites = {SUITE}\n"
        );
        let openssl = dir.file("openssl.cnf", settings);
        Self {
            certificates,
            both,
            openssl,
        }
    }

    /// Returns the setting of our gateway.
    pub(crate) fn gateway(&self) -> String {
        let (cert, key) = self.files();
        format!("tls: {{ cert: {cert:?}, key: {key:?} }}")
    }

    /// Returns the settings of nginx beside those of `listen`.
    pub(crate) fn nginx(&self) -> String {
        let (cert, key) = self.files();
        format!(
            "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3;\n",
            cert.display(),
            key.display()
        )
    }

    /// Returns the options of HAProxy's `bind`.
    pub(crate) fn haproxy(&self) -> String {
        let both = self.both.display();
        format!("ssl crt {both} alpn h2,http/1.1 ssl-min-ver TLSv1.3")
    }

    /// Returns the file for `OPENSSL_CONF` of a client.
    pub(crate) fn openssl(&self) -> &Path {
        &self.openssl
    }

    fn files(&self) -> (PathBuf, PathBuf) {
        let certificates = &self.certificates;
        (certificates.server_cert(), certificates.server_key())
    }
}
