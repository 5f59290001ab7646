//! The gateway: a reverse proxy that enforces the rules on its routes.

mod activity;
mod answer;
mod answer_body;
mod connection;
mod counted;
mod echo;
mod express;
mod forward;
mod forwarded;
mod frames;
mod guarded;
mod health;
mod hop_by_hop;
mod open;
mod outgoing;
mod pieces;
mod pool;
mod pulse;
mod request_body;
mod routes;
mod streams;
mod strict;
mod tls;
mod trouble;
mod tunnel;
mod upstream;
mod upstream_connections;
mod upstreams;

use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;

use crate::config::{self, Config, Limits, Timeouts};
use crate::engine::{Engine, Filters};
use crate::http::DescriptorShare;
use connection::Speech;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use express::fuzz;
use routes::Routes;
pub(crate) use tls::TlsError;
use upstream_connections::UpstreamConnections;

/// Forwards requests, each by its route. There is one for all cores.
#[derive(Debug)]
pub(crate) struct Gateway {
    engine: Arc<Engine>,
    routes: Routes,
    timeouts: Timeouts,
    limits: Limits,
    speech: Speech,
    upstream_connections: Arc<UpstreamConnections>,
    /// What the listener shows, if it speaks TLS.
    tls: Option<tls::ServerTls>,
    /// How TLS is spoken to upstreams, if any wants it.
    client_tls: Option<Arc<ClientConfig>>,
}

impl Gateway {
    /// As the config says; `descriptors` are for connections to upstreams.
    pub(crate) fn new(
        config: &Config,
        filters: &Filters,
        engine: Arc<Engine>,
        descriptors: DescriptorShare,
    ) -> Result<Arc<Self>, TlsError> {
        let gateway = &config.gateway;
        let mut upstreams = gateway.routes.iter().flat_map(|route| &route.upstreams);
        let is_secure =
            |it: &config::Upstream| matches!(it, config::Upstream::Http { tls: true, .. });
        let wants_tls = upstreams.any(is_secure);
        Ok(Arc::new(Self {
            engine,
            routes: Routes::new(config, filters),
            timeouts: gateway.timeouts,
            limits: gateway.limits,
            speech: Speech::new(&gateway.limits, &gateway.timeouts),
            upstream_connections: Arc::new(UpstreamConnections::new(&gateway.limits, descriptors)),
            tls: gateway.tls.clone().map(tls::ServerTls::new).transpose()?,
            client_tls: wants_tls.then(tls::for_upstreams).transpose()?,
        }))
    }

    /// Shows new certificates when they come; for ever, and once for all cores.
    pub(crate) async fn keep_current(&self) {
        if let Some(tls) = &self.tls {
            tls.keep_current().await;
        }
    }

    /// Closes connections of this core that nobody needs; for ever.
    pub(crate) async fn close_idle_upstreams(&self) {
        self.upstream_connections
            .close_idle(self.timeouts.idle)
            .await;
    }
}
