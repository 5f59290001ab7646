//! TLS on both sides: what the gateway shows, and whom it believes.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

use crate::config::{Secret, SecretError, Tls};
use crate::watch::{ReloadedFile, Source};

/// What the listener shows, and may change while it runs.
pub(super) type ServerTls = ReloadedFile<Tls>;

/// What the files hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    cert: Secret,
    key: Secret,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] SecretError),
    /// A file holds no certificates.
    #[error("gateway.tls.cert: {}: no certificates in PEM: {why}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file holds no key.
    #[error("gateway.tls.key: {}: no private key in PEM: {why}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// They cannot be used together.
    #[error("gateway.tls.key: {}: does not go with {}: {why}", key.display(), cert.display())]
    Unusable {
        /// The certificates.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No authority is known whose word counts.
    #[error("no certificates of authorities can be read: {0}")]
    NoRoots(String),
}

impl Source for Tls {
    type Content = Read;
    type Value = ServerConfig;
    type Error = TlsError;

    const REPLACED: &'static str = "the gateway shows a new certificate";
    const KEPT: &'static str = "the gateway keeps its certificate";

    fn read(&self) -> Result<Read, TlsError> {
        Ok(Read {
            cert: Secret::read("gateway.tls.cert", &self.cert)?,
            key: Secret::read("gateway.tls.key", &self.key)?,
        })
    }

    fn build(&self, content: &Read) -> Result<ServerConfig, TlsError> {
        let chain = CertificateDer::pem_slice_iter(content.cert.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| error.to_string()).and_then(|chain| {
            let is_none = chain.is_empty();
            (!is_none)
                .then_some(chain)
                .ok_or_else(|| "it has none".into())
        });
        let chain = chain.map_err(|why| TlsError::NoCertificate {
            path: self.cert.clone(),
            why,
        })?;
        let key = PrivateKeyDer::from_pem_slice(content.key.as_bytes());
        let key = key.map_err(|error| TlsError::NoKey {
            path: self.key.clone(),
            why: error.to_string(),
        })?;
        let unusable = |error: Error| TlsError::Unusable {
            cert: self.cert.clone(),
            key: self.key.clone(),
            why: error.to_string(),
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Speaks TLS to upstreams that an authority of this system, or of the file that
/// `SSL_CERT_FILE` names, vouches for.
pub(super) fn for_upstreams() -> Result<Arc<ClientConfig>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "there are none".into());
        return Err(TlsError::NoRoots(why));
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::NoRoots(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
