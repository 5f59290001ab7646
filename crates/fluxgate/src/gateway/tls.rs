//! TLS on both sides: what the gateway shows, and whom it believes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::{Secret, SecretError, Tls};

/// How often the files are looked at.
const OFTEN: Duration = Duration::from_secs(2);

/// What the listener shows, and may change while it runs.
#[derive(Debug)]
pub(crate) struct ServerTls {
    files: Tls,
    shown: RwLock<Shown>,
}

#[derive(Debug)]
struct Shown {
    config: Arc<ServerConfig>,
    read: Read,
}

/// What the files hold.
#[derive(Debug, PartialEq, Eq)]
struct Read {
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

impl ServerTls {
    /// Reads the files.
    pub(crate) fn load(files: &Tls) -> Result<Self, TlsError> {
        let read = Read::from(files)?;
        let config = read.config(files)?;
        Ok(Self {
            files: files.clone(),
            shown: RwLock::new(Shown { config, read }),
        })
    }

    /// Greets clients with what is shown now.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&shown.config))
    }

    /// Shows what the files hold whenever that changes; for ever. What is bad is
    /// told once and not shown.
    pub(crate) async fn keep_fresh(&self) {
        let mut hangup = signal(SignalKind::hangup()).ok();
        let mut told = None;
        loop {
            let asked = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(OFTEN) => {}
                _ = asked => told = None,
            }
            match self.reload() {
                Ok(false) => {}
                Ok(true) => {
                    told = None;
                    tracing::info!("the gateway shows a new certificate");
                }
                Err(error) => {
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        tracing::error!(%error, "the gateway keeps its certificate");
                        told = Some(error);
                    }
                }
            }
        }
    }

    /// Whether something else is shown now.
    fn reload(&self) -> Result<bool, TlsError> {
        let read = Read::from(&self.files)?;
        let is_same = {
            let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
            shown.read == read
        };
        if is_same {
            return Ok(false);
        }
        let config = read.config(&self.files)?;
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        *shown = Shown { config, read };
        Ok(true)
    }
}

impl Read {
    fn from(files: &Tls) -> Result<Self, TlsError> {
        Ok(Self {
            cert: Secret::read("gateway.tls.cert", &files.cert)?,
            key: Secret::read("gateway.tls.key", &files.key)?,
        })
    }

    fn config(&self, files: &Tls) -> Result<Arc<ServerConfig>, TlsError> {
        let path = |path: &Path| path.to_owned();
        let chain = CertificateDer::pem_slice_iter(self.cert.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| error.to_string()).and_then(|chain| {
            let is_none = chain.is_empty();
            (!is_none)
                .then_some(chain)
                .ok_or_else(|| "it has none".into())
        });
        let chain = chain.map_err(|why| TlsError::NoCertificate {
            path: path(&files.cert),
            why,
        })?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        let key = key.map_err(|error| TlsError::NoKey {
            path: path(&files.key),
            why: error.to_string(),
        })?;
        let unusable = |why: String| TlsError::Unusable {
            cert: path(&files.cert),
            key: path(&files.key),
            why,
        };
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key);
        let mut config = config.map_err(|error| unusable(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
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
