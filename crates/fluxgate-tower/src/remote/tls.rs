//! TLS to the service.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use fluxgate_http::{ClientCertificates, TrustError, client_config_with};

/// The certificates of a client of the service, in PEM.
#[derive(Clone, Default)]
pub(super) struct TlsOptions {
    /// The authorities to trust instead of those of the system.
    pub(super) ca: Option<Pem>,
    /// The certificate of the client and its key.
    pub(super) client: Option<(Pem, Pem)>,
}

type Pem = Box<[u8]>;

impl TlsOptions {
    fn config(&self) -> Result<Arc<ClientConfig>, TrustError> {
        let client = self.client.as_ref();
        client_config_with(ClientCertificates {
            ca: self.ca.as_deref(),
            server: None,
            client: client.map(|(certificate, key)| (&**certificate, &**key)),
        })
    }
}

/// Without the key.
impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions").finish_non_exhaustive()
    }
}

/// Opens TLS connections.
#[derive(Clone)]
pub(super) struct Tls(Result<TlsConnector, TrustError>);

impl Tls {
    /// Trusts the authorities of the system. If there are none, connections fail unless others
    /// are set.
    pub(super) fn of_system() -> Self {
        Self(TlsOptions::default().config().map(TlsConnector::from))
    }

    pub(super) fn new(options: &TlsOptions) -> Result<Self, TrustError> {
        Ok(Self(Ok(TlsConnector::from(options.config()?))))
    }

    pub(super) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let connector = self
            .0
            .as_ref()
            .map_err(|error| io::Error::other(error.clone()))?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        connector.connect(name, stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
