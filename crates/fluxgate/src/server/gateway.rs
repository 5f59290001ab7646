//! The gateway within the service: built from the config, and driven by the engine.

use std::sync::Arc;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::{Decision, RequestContext};
use fluxgate_gateway::{
    CallEnd, CallObserver, EndedRequest, Gateway, LlmConfig, McpConfig, Observers, PreparedConfig,
    RequestObserver, RequestTrace, RouteConfig, UpstreamChange, UpstreamConfig, UpstreamObserver,
    UpstreamTarget,
};
use fluxgate_http::server::{DescriptorShare, Listener, Origin};

use crate::config::{self, Config, Secret, SecretError};
use crate::engine::{Engine, EngineHandler, Filters};
use crate::events::{Events, UpstreamState};
use crate::failure::{Exit, Failure};
use crate::telemetry::Telemetry;

/// Creates the gateway, if the config has an address for it. `requests` is told of every request,
/// and `descriptors` are for connections to upstreams.
pub(super) fn gateway(
    config: &Config,
    filters: &Filters,
    events: &Arc<Events>,
    requests: Option<Arc<dyn RequestObserver>>,
    descriptors: DescriptorShare,
) -> Result<Option<Arc<Gateway<Engine>>>, Failure> {
    if config.listen.gateway.is_none() {
        return Ok(None);
    }
    let prepared = PreparedConfig::new(config_of(config, filters)?);
    let prepared = prepared.map_err(|error| Failure::new(Exit::Config, error))?;
    let observers = Observers {
        upstreams: Arc::new(UpstreamEvents(Arc::clone(events))),
        requests,
    };
    let engine = Arc::clone(events.engine());
    let gateway = Gateway::new(prepared, engine, observers, descriptors);
    Ok(Some(Arc::new(gateway)))
}

/// Returns the configuration of the gateway, with the content of the files that it names.
pub(super) fn config_of(
    config: &Config,
    filters: &Filters,
) -> Result<fluxgate_gateway::Config, SecretError> {
    let gateway = &config.gateway;
    let routes = gateway.routes.iter().enumerate();
    let routes = routes.map(|(index, route)| route_config(index, route, filters));
    Ok(fluxgate_gateway::Config {
        routes: routes.collect::<Result<_, _>>()?,
        timeouts: gateway.timeouts,
        limits: gateway.limits,
        llm_buffer: gateway.llm_buffer,
    })
}

/// Returns the route with this index.
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
    let mcp = route.mcp.as_ref().and_then(|mcp| {
        let filter = route.filters.iter().position(|name| *name == mcp.filter)?;
        Some(McpConfig { filter })
    });
    let upstreams = route.upstreams.iter().enumerate().map(|(at, upstream)| {
        load(
            upstream,
            &format!("gateway.routes[{index}].upstreams[{at}].ca"),
        )
    });
    let [request_headers, response_headers] = route.headers.clone();
    Ok(RouteConfig {
        id: route.id.clone(),
        matches: route.matches.clone(),
        upstreams: upstreams.collect::<Result<_, _>>()?,
        health: route.health.clone(),
        retry: route.retry.clone(),
        timeouts: route.timeouts,
        body_bytes: route.body_bytes,
        rewrite: route.rewrite.clone(),
        request_headers,
        response_headers,
        cors: route.cors.clone(),
        filters: named
            .filter_map(|name| filters.get(name))
            .cloned()
            .collect(),
        llm,
        mcp,
    })
}

/// Reads the authorities of an upstream's certificate from the file that this config field names.
fn load(upstream: &config::Upstream, field: &str) -> Result<UpstreamConfig, SecretError> {
    let mut target = upstream.target.clone();
    if let (Some(path), UpstreamTarget::Http { ca, .. }) = (&upstream.ca, &mut target) {
        *ca = Some(Arc::from(Secret::read(field, path)?.as_bytes()));
    }
    let weight = upstream.weight;
    Ok(UpstreamConfig { target, weight })
}

impl fluxgate_gateway::Engine for Engine {
    type Handler<'a> = EngineHandler<'a>;

    fn handler<'a>(self: &'a Arc<Self>, origin: &'a Origin<'a>) -> EngineHandler<'a> {
        EngineHandler::new(self, origin)
    }

    async fn decide_all(
        &self,
        rule_set: &str,
        rules: Option<&ActiveRuleSet>,
        calls: &[RequestContext<'_>],
        origin: &Origin<'_>,
    ) -> Vec<Decision> {
        self.decide_calls(rule_set, rules, calls, origin).await
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

/// Returns what receives every request: the access log and the telemetry, if they need them.
pub(super) fn observers(
    access_log: Option<Arc<dyn RequestObserver>>,
    telemetry: &Arc<Telemetry>,
) -> Option<Arc<dyn RequestObserver>> {
    if !telemetry.observes_requests() {
        return access_log;
    }
    let telemetry: Arc<dyn RequestObserver> = Arc::<Telemetry>::clone(telemetry);
    Some(match access_log {
        Some(log) => Arc::new(BothObservers { log, telemetry }),
        None => telemetry,
    })
}

/// The access log and the telemetry.
#[derive(Debug)]
struct BothObservers {
    log: Arc<dyn RequestObserver>,
    telemetry: Arc<dyn RequestObserver>,
}

impl RequestObserver for BothObservers {
    fn begin_trace(&self, traceparent: Option<&str>) -> Option<RequestTrace> {
        self.telemetry.begin_trace(traceparent)
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        self.log.request_ended(request);
        self.telemetry.request_ended(request);
    }
}

/// Records changes of upstreams as events.
#[derive(Debug)]
struct UpstreamEvents(Arc<Events>);

impl UpstreamObserver for UpstreamEvents {
    fn upstream_changed(&self, change: &UpstreamChange<'_>) {
        let state = match change.reason {
            Some(_) => UpstreamState::Out,
            None => UpstreamState::Back,
        };
        let reason = change.reason.map(str::to_owned);
        self.0
            .record_upstream(state, change.route, change.upstream, reason);
    }
}

impl RequestObserver for Telemetry {
    fn begin_trace(&self, traceparent: Option<&str>) -> Option<RequestTrace> {
        self.begin_trace(traceparent)
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        self.record_request(request);
    }
}

impl CallObserver for Telemetry {
    fn call_settled(&self, end: CallEnd, prompt_tokens: u64, completion_tokens: u64) {
        self.record_llm_call(end, prompt_tokens, completion_tokens);
    }
}
