//! The gateway: what all connections share.

use std::sync::Arc;

use fluxgate_http::server::DescriptorShare;
use fluxgate_http::{TrustError, client_config};

use crate::admission::AdmissionPolicy;
use crate::config::{Config, Limits, Timeouts, UpstreamTarget};
use crate::engine::Engine;
use crate::forward::Forwarder;
use crate::http_builders::HttpBuilders;
use crate::upstream::{ConnectionLimit, pool};

/// Forwards requests. There is one for all cores.
#[derive(Debug)]
pub struct Gateway<E> {
    pub(crate) engine: Arc<E>,
    pub(crate) policy: AdmissionPolicy<E>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) builders: HttpBuilders,
    pub(crate) forwarder: Forwarder,
}

impl<E: Engine> Gateway<E> {
    /// Creates a gateway. `descriptors` are for connections to upstreams.
    ///
    /// # Errors
    /// If an upstream is reached over TLS and no certificate authorities can be read.
    pub fn new(
        config: Config,
        engine: Arc<E>,
        descriptors: DescriptorShare,
    ) -> Result<Self, TrustError> {
        let Config {
            routes,
            timeouts,
            limits,
            llm_buffer,
        } = config;
        let mut upstreams = routes.iter().flat_map(|route| &route.upstreams);
        let needs_tls = upstreams.any(|it| matches!(it, UpstreamTarget::Http { tls: true, .. }));
        Ok(Self {
            policy: AdmissionPolicy::new(routes, &limits, llm_buffer, Arc::clone(&engine)),
            engine,
            timeouts,
            limits,
            builders: HttpBuilders::new(&limits, &timeouts),
            forwarder: Forwarder {
                timeouts,
                connections: Arc::new(ConnectionLimit::new(&limits, descriptors)),
                tls: needs_tls.then(client_config).transpose()?,
            },
        })
    }

    /// Closes idle connections of this core to upstreams. Never returns.
    pub async fn close_idle_upstreams(&self) {
        pool::close_idle(&self.forwarder.connections, self.timeouts.idle).await;
    }
}
