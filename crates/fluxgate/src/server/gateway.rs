//! The gateway within the service: built from the config, and driven by the engine.

use std::sync::Arc;

use fluxgate_gateway::{CallEnd, CallObserver, Gateway, LlmConfig, RouteConfig, UpstreamTarget};
use fluxgate_http::server::{DescriptorShare, Listener, Origin};

use crate::config::{self, Config, Secret, SecretError};
use crate::engine::{Engine, EngineHandler, Filters};
use crate::failure::{Exit, Failure};
use crate::telemetry::Telemetry;

/// Creates the gateway, if the config has an address for it. `descriptors` are for connections to
/// upstreams.
pub(super) fn gateway(
    config: &Config,
    filters: &Filters,
    engine: &Arc<Engine>,
    descriptors: DescriptorShare,
) -> Result<Option<Arc<Gateway<Engine>>>, Failure> {
    if config.listen.gateway.is_none() {
        return Ok(None);
    }
    let gateway = &config.gateway;
    let routes = gateway.routes.iter().enumerate();
    let routes = routes.map(|(index, route)| route_config(index, route, filters));
    let config = fluxgate_gateway::Config {
        routes: routes.collect::<Result<_, _>>()?,
        timeouts: gateway.timeouts,
        limits: gateway.limits,
        llm_buffer: gateway.llm_buffer,
    };
    let gateway = Gateway::new(config, Arc::clone(engine), descriptors);
    let gateway = gateway.map_err(|error| Failure::new(Exit::Config, error))?;
    Ok(Some(Arc::new(gateway)))
}

fn route_config(
    index: usize,
    route: &config::Route,
    filters: &Filters,
) -> Result<RouteConfig, SecretError> {
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
    let upstreams = route.upstreams.iter().enumerate().map(|(at, upstream)| {
        load(
            upstream,
            &format!("gateway.routes[{index}].upstreams[{at}].ca"),
        )
    });
    Ok(RouteConfig {
        id: route.id.clone(),
        matches: route.matches.clone(),
        upstreams: upstreams.collect::<Result<_, _>>()?,
        filters: named
            .filter_map(|name| filters.get(name))
            .cloned()
            .collect(),
        llm,
    })
}

/// Reads the authorities of an upstream's certificate from the file that this config field names.
fn load(upstream: &config::Upstream, field: &str) -> Result<UpstreamTarget, SecretError> {
    let mut target = upstream.target.clone();
    if let (Some(path), UpstreamTarget::Http { ca, .. }) = (&upstream.ca, &mut target) {
        *ca = Some(Arc::from(Secret::read(field, path)?.as_bytes()));
    }
    Ok(target)
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
