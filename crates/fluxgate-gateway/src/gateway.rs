//! The gateway, and what it needs of the service that it runs in.

use std::sync::Arc;

use fluxgate_core::Decision;
use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_http::server::{DescriptorShare, Origin};
use fluxgate_http::{Handler, TrustError, client_config};

use crate::config::{Config, Limits, Timeouts, UpstreamTarget};
use crate::forward::Forwarder;
use crate::http_builders::HttpBuilders;
use crate::llm::{BodyBuffer, CallObserver};
use crate::routes::Routes;
use crate::upstream::{ConnectionLimit, pool};

/// Decides requests and records responses.
pub trait Engine: Send + Sync + 'static {
    /// Decides the requests of one filter.
    type Handler<'a>: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>;

    /// Returns the handler for a request of this origin.
    fn handler<'a>(self: &'a Arc<Self>, origin: &'a Origin<'a>) -> Self::Handler<'a>;

    /// Returns whether requests can be decided: whether the rules are loaded.
    fn is_ready(&self) -> bool;

    /// Records a response.
    fn record_response(&self, status: u16, origin: &Origin<'_>);

    /// Returns what records calls to language models.
    fn call_observer(self: &Arc<Self>) -> Arc<dyn CallObserver>;

    /// Returns whether to log a request that was not forwarded. A flood of them must not
    /// become a flood of lines.
    fn should_log(&self) -> bool;
}

/// Forwards requests. There is one for all cores.
#[derive(Debug)]
pub struct Gateway<E> {
    pub(crate) engine: Arc<E>,
    pub(crate) routes: Routes,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) builders: HttpBuilders,
    pub(crate) forwarder: Forwarder,
    /// The memory for bodies of calls to language models.
    pub(crate) call_bodies: Arc<BodyBuffer>,
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
            engine,
            routes: Routes::new(routes),
            timeouts,
            limits,
            builders: HttpBuilders::new(&limits, &timeouts),
            forwarder: Forwarder {
                timeouts,
                connections: Arc::new(ConnectionLimit::new(&limits, descriptors)),
                tls: needs_tls.then(client_config).transpose()?,
            },
            call_bodies: BodyBuffer::new(llm_buffer),
        })
    }

    /// Closes idle connections of this core to upstreams. Never returns.
    pub async fn close_idle_upstreams(&self) {
        pool::close_idle(&self.forwarder.connections, self.timeouts.idle).await;
    }
}
