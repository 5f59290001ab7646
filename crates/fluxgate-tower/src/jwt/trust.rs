//! The certificate authorities that TLS clients trust.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// No certificate authority can be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no trusted certificate authorities can be read: {0}")]
pub struct TrustError(String);

/// Returns a client configuration that trusts the certificate authorities of the system, or of
/// the file that `SSL_CERT_FILE` names.
pub fn client_config() -> Result<Arc<ClientConfig>, TrustError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map(ToString::to_string);
        return Err(TrustError(why.unwrap_or_else(|| "there are none".into())));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
