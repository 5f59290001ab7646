//! The certificate of the gateway. [`ReloadedFile`] reloads it when its files change.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};

use crate::config::{Secret, SecretError, Tls};
use crate::failure::{Exit, Failure};
use crate::watch::{FileValue, ReloadedFile};

/// The current certificate.
pub(super) type Certificate = ReloadedFile<Tls>;

/// The content of the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    cert: Secret,
    key: Secret,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] SecretError),
    /// A file holds no certificates.
    #[error("`gateway.tls.cert`: {}: no certificates in PEM: {why}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// A file holds no key.
    #[error("`gateway.tls.key`: {}: no private key in PEM: {why}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The key does not belong to the certificate.
    #[error("`gateway.tls.key`: {}: does not match {}: {why}", key.display(), cert.display())]
    Mismatch {
        /// The file of the certificates.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        why: String,
    },
}

impl From<CertificateError> for Failure {
    fn from(error: CertificateError) -> Self {
        let field = match error {
            CertificateError::Unreadable(error) => return error.into(),
            CertificateError::NoCertificate { .. } => "gateway.tls.cert",
            CertificateError::NoKey { .. } | CertificateError::Mismatch { .. } => "gateway.tls.key",
        };
        Self::of_field(Exit::Config, field, error)
    }
}

impl FileValue for Tls {
    type Content = Content;
    type Value = ServerConfig;
    type Error = CertificateError;

    const REPLACED: &'static str = "the gateway uses a new certificate";
    const KEPT: &'static str = "the gateway keeps its certificate";

    fn read(&self) -> Result<Content, CertificateError> {
        Ok(Content {
            cert: Secret::read("gateway.tls.cert", &self.cert)?,
            key: Secret::read("gateway.tls.key", &self.key)?,
        })
    }

    fn build(&self, content: &Content) -> Result<ServerConfig, CertificateError> {
        let chain = CertificateDer::pem_slice_iter(content.cert.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>();
        let chain = match chain {
            Ok(chain) if chain.is_empty() => Err("the file has none".to_owned()),
            chain => chain.map_err(|error| error.to_string()),
        };
        let chain = chain.map_err(|why| CertificateError::NoCertificate {
            path: self.cert.clone(),
            why,
        })?;
        let key = PrivateKeyDer::from_pem_slice(content.key.as_bytes());
        let key = key.map_err(|error| CertificateError::NoKey {
            path: self.key.clone(),
            why: error.to_string(),
        })?;
        let mismatch = |error: Error| CertificateError::Mismatch {
            cert: self.cert.clone(),
            key: self.key.clone(),
            why: error.to_string(),
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(mismatch)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(mismatch)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}
