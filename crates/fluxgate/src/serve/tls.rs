//! TLS on the connections of a listener.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_http::server::{Listener, close_gracefully, until_closing};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::sync::CancellationToken;

use super::certificate::{Certificate, CertificateError, CertificateFiles, LoadedCertificate};
use crate::config::Config;
use crate::failure::Failure;
use crate::telemetry::Telemetry;

/// How long a handshake may take, except on the gateway, which has a timeout of its own.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Encrypts the connections of a listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerTls {
    listener: Listener,
    certificate: Arc<Certificate>,
    timeout: Duration,
    telemetry: Arc<Telemetry>,
}

impl ListenerTls {
    /// Reads the certificate of a listener, if it uses TLS.
    pub(crate) fn new(
        listener: Listener,
        config: &Config,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Option<Self>, Failure> {
        let Some(files) = CertificateFiles::of(listener, config) else {
            return Ok(None);
        };
        Ok(Some(Self {
            listener,
            certificate: Arc::new(Certificate::new(files)?),
            timeout: match listener {
                Listener::Gateway => config.gateway.timeouts.headers,
                _ => HANDSHAKE_TIMEOUT,
            },
            telemetry: Arc::clone(telemetry),
        }))
    }

    /// Reads the certificate that another configuration names, if it is another one.
    pub(crate) fn load_other(
        &self,
        config: &Config,
    ) -> Result<Option<LoadedCertificate>, CertificateError> {
        let files = CertificateFiles::of(self.listener, config);
        let other = files.filter(|files| *files != self.certificate.source());
        other.map(LoadedCertificate::new).transpose()
    }

    /// Uses this certificate for connections from now on.
    pub(crate) fn replace(&self, certificate: LoadedCertificate) {
        self.certificate.replace(certificate);
    }

    /// Reloads the certificate when its files change. Never returns.
    pub(crate) async fn keep_current(&self) {
        self.certificate.keep_current().await;
    }

    /// Makes the handshake. Returns `None` if it failed, which is counted and logged, or if the
    /// service shuts down.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        closing: &CancellationToken,
    ) -> Option<Box<TlsStream<TcpStream>>> {
        let acceptor = TlsAcceptor::from(self.certificate.current());
        let handshake = acceptor.accept(stream).into_fallible();
        let handshake = until_closing(handshake, closing);
        match tokio::time::timeout(self.timeout, handshake).await {
            Ok(Some(Ok(stream))) => Some(Box::new(stream)),
            Ok(Some(Err((error, stream)))) => {
                self.failed(&reason(&error));
                // The client may still send, and must be able to read why it failed.
                let _ = close_gracefully(stream).await;
                None
            }
            Ok(None) => None,
            Err(_) => {
                self.failed("the handshake took too long");
                None
            }
        }
    }

    fn failed(&self, reason: &str) {
        if self.telemetry.record_tls_failure(self.listener) {
            let listener = self.listener.name();
            tracing::info!(listener, reason, "a TLS handshake failed");
        }
    }
}

/// Returns why a handshake failed.
fn reason(error: &io::Error) -> String {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            "the client does not speak TLS".to_owned()
        }
        Some(rustls::Error::NoCertificatesPresented) => "the client has no certificate".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use fluxgate_testkit::Certificates;
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::RawConfig;

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_never_ends_is_given_up() {
        let certificates = Certificates::generate();
        let (cert, key) = (certificates.server_cert(), certificates.server_key());
        let config = format!(
            "listen: {{ api: {{ address: '127.0.0.1:0', tls: {{ cert: '{}', key: '{}' }} }} }}",
            cert.display(),
            key.display()
        );
        let config = RawConfig::parse("f.yaml".as_ref(), &config)
            .unwrap()
            .check()
            .unwrap();
        let telemetry = Arc::new(Telemetry::new(&config.telemetry, false).0);
        let tls = ListenerTls::new(Listener::Api, &config, &telemetry).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (stream, _) = listener.accept().await.unwrap();
        let started = tokio::time::Instant::now();
        let closing = CancellationToken::new();
        let accepted = tls.unwrap().accept(stream, &closing).await;
        assert!(accepted.is_none());
        assert_eq!(started.elapsed().as_secs(), HANDSHAKE_TIMEOUT.as_secs());
    }
}
