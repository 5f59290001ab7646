//! The gateway: what all connections share.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use fluxgate_http::TrustError;
use fluxgate_http::server::DescriptorShare;
use quanta::Instant;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::active_config::{ActiveConfig, HttpBuilders};
use crate::admission::AdmissionPolicy;
use crate::config::Config;
use crate::counts::{ResponseCounts, ResponseTotals};
use crate::engine::{Engine, RequestObserver};
use crate::forward::Forwarder;
use crate::health_check::HealthChecks;
use crate::llm::BodyBuffer;
use crate::observer::UpstreamObserver;
use crate::routes::{RouteDefaults, RouteRegistry, Routes};
use crate::upstream::{ConnectionLimit, TlsClients, UpstreamRegistry, UpstreamStatus, pool};

/// How often the counters are sampled, for those of the last minute.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Forwards requests. There is one for all cores.
#[derive(Debug)]
pub struct Gateway<E> {
    pub(crate) engine: Arc<E>,
    config: ArcSwap<ActiveConfig<E>>,
    /// What a reload keeps. It is locked for the whole of a reload.
    registry: Mutex<RouteRegistry>,
    /// Notified when the configuration has been replaced.
    reloaded: Notify,
    pub(crate) connections: Arc<ConnectionLimit>,
    /// The memory for bodies of calls to language models.
    bodies: Arc<BodyBuffer>,
    /// The counts of requests without a route.
    pub(crate) unrouted: Arc<ResponseCounts>,
    /// Receives every request, if there is an access log or if requests are traced.
    pub(crate) observer: Option<Arc<dyn RequestObserver>>,
}

/// A configuration that can be applied.
#[derive(Debug)]
pub struct PreparedConfig {
    config: Config,
    tls: TlsClients,
}

impl PreparedConfig {
    /// Prepares a configuration. May read the authorities of the system from files.
    ///
    /// # Errors
    /// If an upstream is reached over TLS and no certificate authorities can be read.
    pub fn new(config: Config) -> Result<Self, TrustError> {
        let upstreams = config.routes.iter().flat_map(|route| &route.upstreams);
        let tls = TlsClients::new(upstreams.map(|it| &it.target))?;
        Ok(Self { config, tls })
    }
}

/// The observers of a gateway.
#[derive(Debug)]
pub struct Observers {
    /// Receives upstreams that go out, and that come back.
    pub upstreams: Arc<dyn UpstreamObserver>,
    /// Receives every request when it has ended.
    pub requests: Option<Arc<dyn RequestObserver>>,
}

/// How a route is doing.
#[derive(Clone, Debug)]
pub struct RouteStatus {
    /// The id of the route; empty for requests without a route.
    pub id: String,
    /// The responses since the start, those of the gateway itself included.
    pub responses: ResponseTotals,
    /// Attempts after the first, since the start.
    pub retries: u64,
    /// The upstreams, in the order of the config.
    pub upstreams: Vec<UpstreamStatus>,
}

impl<E: Engine> Gateway<E> {
    /// Creates a gateway. `descriptors` are for connections to upstreams.
    pub fn new(
        prepared: PreparedConfig,
        engine: Arc<E>,
        observers: Observers,
        descriptors: DescriptorShare,
    ) -> Self {
        let mut registry = RouteRegistry::new(UpstreamRegistry::new(observers.upstreams));
        let connections = ConnectionLimit::new(&prepared.config.limits, descriptors);
        let connections = Arc::new(connections);
        let bodies = BodyBuffer::new(prepared.config.llm_buffer);
        let config = activate(prepared, &engine, &mut registry, &connections, &bodies);
        Self {
            config: ArcSwap::from_pointee(config),
            registry: Mutex::new(registry),
            reloaded: Notify::new(),
            engine,
            connections,
            bodies,
            unrouted: Arc::new(ResponseCounts::new()),
            observer: observers.requests,
        }
    }

    /// Replaces the configuration, for the requests and connections that begin from now on. The
    /// limit of connections to upstreams and the memory for bodies stay as they are.
    ///
    /// Upstreams that stay keep their connections, their health and their counters. Idle
    /// connections to the others are closed within a second.
    pub fn reload(&self, prepared: PreparedConfig) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let Self {
            engine,
            connections,
            bodies,
            ..
        } = self;
        let config = activate(prepared, engine, &mut registry, connections, bodies);
        let config = Arc::new(config);
        self.config.store(Arc::clone(&config));
        registry.retain(config.policy.routes());
        self.reloaded.notify_one();
    }

    /// Returns the active configuration.
    pub(crate) fn config(&self) -> Arc<ActiveConfig<E>> {
        self.config.load_full()
    }

    /// Returns a view of the active configuration for one connection, which then counts no
    /// reference for each request.
    pub(crate) fn config_cache(&self) -> ConfigCache<'_, E> {
        Cache::new(&self.config)
    }

    /// Returns how all routes are doing, in the order of the config, and then the requests
    /// without a route.
    pub fn status(&self) -> Vec<RouteStatus> {
        let now = Instant::now();
        let config = self.config();
        let routes = config.policy.routes().iter().map(|route| RouteStatus {
            id: route.id.to_string(),
            responses: route.counts.responses.totals(),
            retries: route.counts.retries.load(Ordering::Relaxed),
            upstreams: { route.upstreams.upstreams().iter() }
                .map(|upstream| upstream.status(now))
                .collect(),
        });
        let unrouted = RouteStatus {
            id: String::new(),
            responses: self.unrouted.totals(),
            retries: 0,
            upstreams: Vec::new(),
        };
        routes.chain([unrouted]).collect()
    }

    /// Watches the routes and checks their upstreams until the service closes.
    pub async fn watch(self: Arc<Self>, closing: &CancellationToken) {
        // They end when this is dropped.
        let mut checks = HealthChecks::default();
        let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
        // Checks over HTTP/2 leave connections on this thread.
        let mut closing_idle = pin!(self.close_idle_upstreams());
        loop {
            checks.follow(self.config().policy.routes(), |check| {
                let gateway = Arc::clone(&self);
                async move { check.run(|| gateway.config()).await }
            });
            let mut reloaded = pin!(self.reloaded.notified());
            loop {
                tokio::select! {
                    _ = interval.tick() => self.sample(),
                    () = &mut reloaded => break,
                    () = &mut closing_idle => {}
                    () = closing.cancelled() => return,
                }
            }
        }
    }

    /// Keeps the counters of this moment, for those of the last minute.
    fn sample(&self) {
        let now = Instant::now();
        for route in self.config().policy.routes() {
            route.counts.sample(now);
            for upstream in route.upstreams.upstreams() {
                upstream.sample(now);
            }
        }
    }

    /// Closes idle connections of this core to upstreams. Never returns.
    pub async fn close_idle_upstreams(&self) {
        let timeout = || self.config().timeouts.idle;
        pool::close_idle(&self.connections, timeout).await;
    }
}

/// A view of the active configuration.
pub(crate) type ConfigCache<'g, E> = Cache<&'g ArcSwap<ActiveConfig<E>>, Arc<ActiveConfig<E>>>;

/// Creates the active configuration, with what the registry knows of its routes.
fn activate<E: Engine>(
    PreparedConfig { config, tls }: PreparedConfig,
    engine: &Arc<E>,
    registry: &mut RouteRegistry,
    connections: &Arc<ConnectionLimit>,
    bodies: &Arc<BodyBuffer>,
) -> ActiveConfig<E> {
    let Config {
        routes,
        timeouts,
        limits,
        ..
    } = config;
    let defaults = RouteDefaults {
        timeouts,
        max_body: limits.body_bytes,
    };
    let routes = Routes::new(routes, defaults, registry);
    ActiveConfig {
        policy: AdmissionPolicy::new(Arc::clone(engine), routes, bodies),
        forwarder: Forwarder {
            connections: Arc::clone(connections),
            tls,
        },
        timeouts,
        limits,
        builders: HttpBuilders::new(&limits, &timeouts),
    }
}
