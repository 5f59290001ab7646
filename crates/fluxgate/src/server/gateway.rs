//! The gateway within the service: built from the config, and driven by the engine.

use std::net::SocketAddr;
use std::sync::Arc;

use fluxgate_gateway::{CallEnd, CallObserver, Gateway, LlmConfig, RouteConfig};
use fluxgate_http::server::{ClientStream, DescriptorShare, Listener, Origin};
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::engine::{Engine, EngineHandler, Filters};
use crate::failure::{Exit, Failure};
use crate::telemetry::Telemetry;

/// The gateway behind its listener.
#[derive(Clone, Debug)]
pub(super) struct GatewayListener {
    gateway: Arc<Gateway<Engine>>,
}

impl GatewayListener {
    /// Creates the gateway, if the config has an address for it. `descriptors` are for
    /// connections to upstreams.
    pub(super) fn new(
        config: &Config,
        filters: &Filters,
        engine: &Arc<Engine>,
        descriptors: DescriptorShare,
    ) -> Result<Option<Self>, Failure> {
        if config.listen.gateway.is_none() {
            return Ok(None);
        }
        let gateway = &config.gateway;
        let routes = gateway
            .routes
            .iter()
            .map(|route| route_config(route, filters));
        let config = fluxgate_gateway::Config {
            routes: routes.collect(),
            timeouts: gateway.timeouts,
            limits: gateway.limits,
            llm_buffer: gateway.llm_buffer,
        };
        let gateway = Gateway::new(config, Arc::clone(engine), descriptors)
            .map_err(|error| Failure::new(Exit::Config, error))?;
        Ok(Some(Self {
            gateway: Arc::new(gateway),
        }))
    }

    /// Closes idle connections of this core to upstreams. Never returns.
    pub(super) async fn close_idle_upstreams(&self) {
        self.gateway.close_idle_upstreams().await;
    }

    /// Serves a connection until it ends.
    pub(super) fn serve<S: ClientStream>(
        &self,
        stream: S,
        peer: SocketAddr,
        closing: CancellationToken,
    ) -> impl Future<Output = ()> + use<S> {
        fluxgate_gateway::serve(Arc::clone(&self.gateway), stream, peer, closing)
    }
}

fn route_config(route: &config::Route, filters: &Filters) -> RouteConfig {
    let named = route.filters.iter();
    let llm = route.llm.as_ref().and_then(|llm| {
        let filter = route.filters.iter().position(|name| *name == llm.rules)?;
        Some(LlmConfig {
            filter,
            reserve: llm.reserve,
            unknown: llm.unknown,
            on_abort: llm.on_abort,
        })
    });
    RouteConfig {
        id: route.id.clone(),
        matches: route.matches.clone(),
        upstreams: route.upstreams.clone(),
        filters: named
            .filter_map(|name| filters.get(name))
            .cloned()
            .collect(),
        llm,
    }
}

impl fluxgate_gateway::Engine for Engine {
    type Handler<'a> = EngineHandler<'a>;

    fn handler<'a>(self: &'a Arc<Self>, origin: &'a Origin<'a>) -> EngineHandler<'a> {
        EngineHandler::new(self, origin)
    }

    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn record_response(&self, status: u16, origin: &Origin<'_>) {
        let telemetry = self.telemetry();
        telemetry.record_response(Listener::Gateway, status, || origin);
    }

    fn call_observer(self: &Arc<Self>) -> Arc<dyn CallObserver> {
        Arc::<Telemetry>::clone(self.telemetry())
    }

    fn should_log(&self) -> bool {
        self.telemetry().should_log_unforwarded()
    }
}

impl CallObserver for Telemetry {
    fn call_settled(&self, end: CallEnd, prompt_tokens: u64, completion_tokens: u64) {
        self.record_llm_call(end, prompt_tokens, completion_tokens);
    }
}
