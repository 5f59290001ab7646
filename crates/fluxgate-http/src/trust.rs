//! The certificate authorities that TLS clients trust.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};

/// No certificate authority can be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no trusted certificate authorities can be read: {0}")]
pub struct TrustError(String);

/// The certificates of a TLS client, in PEM.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCertificates<'a> {
    /// The authorities to trust instead of those of the system.
    pub ca: Option<&'a [u8]>,
    /// The only certificate that the server may present, whatever its names and its authority;
    /// used instead of `ca`. Of several certificates the first counts.
    pub server: Option<&'a [u8]>,
    /// The certificate of the client and its key.
    pub client: Option<(&'a [u8], &'a [u8])>,
}

/// Returns a client configuration. Without authorities of its own it trusts those of the system,
/// or of the file that `SSL_CERT_FILE` names.
pub fn client_config_with(
    certificates: ClientCertificates<'_>,
) -> Result<Arc<ClientConfig>, TrustError> {
    let ClientCertificates { ca, server, client } = certificates;
    let failed = |error: rustls::Error| TrustError(error.to_string());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let config = match server {
        None => config.with_root_certificates(ca.map_or_else(system_roots, roots_in)?),
        Some(pem) => config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OneCertificate::read(pem)?)),
    };
    let config = match client {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
                TrustError(format!(
                    "the client's key is no private key in PEM: {error}"
                ))
            })?;
            let chain = certificates_in(chain).map_err(no_certificates)?;
            let config = config.with_client_auth_cert(chain, key);
            config.map_err(failed)?
        }
    };
    Ok(Arc::new(config))
}

fn system_roots() -> Result<RootCertStore, TrustError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map(ToString::to_string);
        return Err(TrustError(why.unwrap_or_else(|| "there are none".into())));
    }
    Ok(roots)
}

fn roots_in(pem: &[u8]) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(pem).map_err(no_certificates)? {
        let added = roots.add(certificate);
        added.map_err(|error| TrustError(error.to_string()))?;
    }
    Ok(roots)
}

/// Returns the certificates of a file in PEM.
///
/// # Errors
/// If there are none, or the file is not PEM.
pub fn certificates_in(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() {
        return Err(pem::Error::NoItemsFound);
    }
    Ok(certificates)
}

fn no_certificates(error: pem::Error) -> TrustError {
    TrustError(format!("no certificates in PEM: {error}"))
}

/// Accepts one certificate.
#[derive(Debug)]
struct OneCertificate {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The server has another certificate than the one that is accepted.
#[derive(Debug, thiserror::Error)]
#[error("the server presents another certificate")]
struct OtherCertificate;

impl OneCertificate {
    fn read(pem: &[u8]) -> Result<Self, TrustError> {
        let mut chain = certificates_in(pem).map_err(no_certificates)?;
        Ok(Self {
            certificate: chain.swap_remove(0),
            algorithms: ring::default_provider().signature_verification_algorithms,
        })
    }
}

impl ServerCertVerifier for OneCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(OtherError(Arc::new(OtherCertificate)).into())
        }
    }

    // The signatures show that the server has the key of the certificate.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
