//! How to connect to upstreams over TLS.

use std::sync::Arc;

use fluxgate_http::{ClientCertificates, TrustError, client_config_with};
use tokio_rustls::rustls::ClientConfig;

use crate::config::{UpstreamScheme, UpstreamTarget};

/// The names of the protocols in the handshake (ALPN).
pub(super) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// How to connect to each upstream. Upstreams with the same authorities share a configuration.
#[derive(Debug, Default)]
pub(crate) struct TlsClients(Vec<(Option<Arc<[u8]>>, TlsClient)>);

/// How to connect to upstreams whose certificates have certain authorities.
#[derive(Debug)]
struct TlsClient {
    /// Lets the server choose HTTP/2 or HTTP/1.1.
    either: Arc<ClientConfig>,
    /// Offers only HTTP/1.1.
    http1: Arc<ClientConfig>,
}

impl TlsClients {
    /// Reads the authorities of all targets that are reached over TLS.
    ///
    /// # Errors
    /// If authorities cannot be read.
    pub(crate) fn new<'a>(
        targets: impl IntoIterator<Item = &'a UpstreamTarget>,
    ) -> Result<Self, TrustError> {
        let mut clients = Self::default();
        for target in targets {
            if let Some(ca) = authorities(target)
                && clients.with(ca).is_none()
            {
                let client = TlsClient::new(ca.as_deref())?;
                clients.0.push((ca.clone(), client));
            }
        }
        Ok(clients)
    }

    /// Returns how to connect to a target, if it is reached over TLS.
    pub(crate) fn of(
        &self,
        target: &UpstreamTarget,
        http1_only: bool,
    ) -> Option<&Arc<ClientConfig>> {
        let client = self.with(authorities(target)?)?;
        Some(if http1_only {
            &client.http1
        } else {
            &client.either
        })
    }

    fn with(&self, ca: &Option<Arc<[u8]>>) -> Option<&TlsClient> {
        let found = self.0.iter().find(|(known, _)| known == ca);
        found.map(|(_, client)| client)
    }
}

/// Returns the authorities of a target that is reached over TLS; `Some(None)` are those of the
/// system.
fn authorities(target: &UpstreamTarget) -> Option<&Option<Arc<[u8]>>> {
    match target {
        UpstreamTarget::Http {
            scheme: UpstreamScheme::Https,
            ca,
            ..
        } => Some(ca),
        _ => None,
    }
}

impl TlsClient {
    fn new(ca: Option<&[u8]>) -> Result<Self, TrustError> {
        let config = client_config_with(ClientCertificates {
            ca,
            ..ClientCertificates::default()
        })?;
        let offering = |protocols: &[&[u8]]| {
            let mut config = ClientConfig::clone(&config);
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            either: offering(&[HTTP2, HTTP1]),
            http1: offering(&[HTTP1]),
        })
    }
}
