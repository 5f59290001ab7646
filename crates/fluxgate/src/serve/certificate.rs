//! The certificate of a listener, and the authority of its clients. [`ReloadedFile`] reloads
//! them when their files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fluxgate_http::certificates_in;
use fluxgate_http::server::Listener;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};

use crate::config::{Config, Secret, SecretError, Tls};
use crate::failure::{Exit, Failure};
use crate::watch::{FileValue, LoadedFile, ReloadedFile};

/// The current certificate of a listener.
pub(super) type Certificate = ReloadedFile<CertificateFiles>;

/// A certificate that is not in use yet.
pub(crate) type LoadedCertificate = LoadedFile<CertificateFiles>;

/// The files of a listener's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    listener: Listener,
    tls: Tls,
    /// The config section that names them.
    section: &'static str,
}

/// The content of the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CertificateContent {
    cert: Secret,
    key: Secret,
    client_ca: Option<Secret>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] SecretError),
    /// The content of a file cannot be used.
    #[error("`{field}`: {}: {why}", path.display())]
    Unusable {
        /// The config field that names the file.
        field: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
}

impl From<CertificateError> for Failure {
    fn from(error: CertificateError) -> Self {
        match error {
            CertificateError::Unreadable(error) => error.into(),
            CertificateError::Unusable { ref field, .. } => {
                Self::of_field(Exit::Config, field.clone(), error)
            }
        }
    }
}

impl CertificateFiles {
    /// Returns the files of a listener, if it uses TLS.
    pub(super) fn of(listener: Listener, config: &Config) -> Option<Self> {
        let section = match listener {
            Listener::Gateway if config.gateway.tls.is_some() => "gateway.tls",
            Listener::Gateway => "listen.gateway.tls",
            Listener::Api => "listen.api.tls",
            Listener::Grpc => "listen.grpc.tls",
            Listener::Resp => "listen.resp.tls",
        };
        Some(Self {
            listener,
            tls: config.listener_tls(listener)?.clone(),
            section,
        })
    }

    /// Reads a file of the section.
    fn read_file(&self, field: &str, path: &Path) -> Result<Secret, SecretError> {
        Secret::read(&format!("{}.{field}", self.section), path)
    }

    /// Returns the certificates of a file, at least one.
    fn certificates(
        &self,
        field: &str,
        path: &Path,
        pem: &Secret,
    ) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
        certificates_in(pem.as_bytes()).map_err(|error| {
            let why = format!("no certificates in PEM: {error}");
            self.unusable(field, path, why)
        })
    }

    fn unusable(&self, field: &str, path: &Path, why: impl ToString) -> CertificateError {
        CertificateError::Unusable {
            field: format!("{}.{field}", self.section),
            path: path.into(),
            why: why.to_string(),
        }
    }

    /// Returns the listener as log messages name it.
    fn name(&self) -> &'static str {
        match self.listener {
            Listener::Gateway => "gateway",
            Listener::Api => "API",
            Listener::Grpc => "gRPC listener",
            Listener::Resp => "RESP listener",
        }
    }

    /// Returns the verifier of client certificates, if clients need one.
    fn client_roots(
        &self,
        content: &CertificateContent,
    ) -> Result<Option<RootCertStore>, CertificateError> {
        let (Some(path), Some(pem)) = (&self.tls.client_ca, &content.client_ca) else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates("client_ca", path, pem)? {
            let added = roots.add(certificate);
            added.map_err(|error| self.unusable("client_ca", path, error))?;
        }
        Ok(Some(roots))
    }
}

impl FileValue for CertificateFiles {
    type Content = CertificateContent;
    type Value = ServerConfig;
    type Error = CertificateError;

    fn replaced_message(&self) -> String {
        format!("the {} uses a new certificate", self.name())
    }

    fn kept_message(&self) -> String {
        format!("the {} keeps its certificate", self.name())
    }

    fn read(&self) -> Result<CertificateContent, CertificateError> {
        let client_ca = self.tls.client_ca.as_deref();
        let client_ca = client_ca.map(|path| self.read_file("client_ca", path));
        Ok(CertificateContent {
            cert: self.read_file("cert", &self.tls.cert)?,
            key: self.read_file("key", &self.tls.key)?,
            client_ca: client_ca.transpose()?,
        })
    }

    fn build(&self, content: &CertificateContent) -> Result<ServerConfig, CertificateError> {
        let tls = &self.tls;
        let chain = self.certificates("cert", &tls.cert, &content.cert)?;
        let key = PrivateKeyDer::from_pem_slice(content.key.as_bytes()).map_err(|error| {
            let why = format!("no private key in PEM: {error}");
            self.unusable("key", &tls.key, why)
        })?;
        let mismatch = |error: Error| {
            let why = format!("does not match {}: {error}", tls.cert.display());
            self.unusable("key", &tls.key, why)
        };
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(mismatch)?;
        let config = match self.client_roots(content)? {
            None => config.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .map_err(|error| {
                        let path = tls.client_ca.as_deref().unwrap_or(Path::new(""));
                        self.unusable("client_ca", path, error)
                    })?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let mut config = config.with_single_cert(chain, key).map_err(mismatch)?;
        config.alpn_protocols = match self.listener {
            Listener::Gateway | Listener::Api => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Listener::Grpc => vec![b"h2".to_vec()],
            Listener::Resp => Vec::new(),
        };
        Ok(config)
    }
}
