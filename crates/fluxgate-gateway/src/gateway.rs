//! The gateway: what all connections share.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fluxgate_http::TrustError;
use fluxgate_http::server::DescriptorShare;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;

use quanta::Instant;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::AdmissionPolicy;
use crate::config::{Config, Limits, Timeouts};
use crate::counts::{ResponseCounts, ResponseTotals};
use crate::engine::{Engine, RequestObserver};
use crate::forward::Forwarder;
use crate::health_check::HealthCheck;
use crate::llm::BodyBuffer;
use crate::observer::UpstreamObserver;
use crate::routes::{RouteDefaults, RouteRegistry, Routes};
use crate::timeouts::StreamExecutor;
use crate::upstream::{ConnectionLimit, TlsClients, UpstreamRegistry, UpstreamStatus, pool};

/// How often the counters are sampled, for those of the last minute.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Forwards requests. There is one for all cores.
#[derive(Debug)]
pub struct Gateway<E> {
    pub(crate) engine: Arc<E>,
    pub(crate) policy: AdmissionPolicy<E>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) builders: HttpBuilders,
    pub(crate) forwarder: Forwarder,
    /// The counts of requests without a route.
    pub(crate) unrouted: Arc<ResponseCounts>,
    /// Receives every request, if there is an access log or if requests are traced.
    pub(crate) observer: Option<Arc<dyn RequestObserver>>,
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
    ///
    /// # Errors
    /// If an upstream is reached over TLS and no certificate authorities can be read.
    pub fn new(
        config: Config,
        engine: Arc<E>,
        observers: Observers,
        descriptors: DescriptorShare,
    ) -> Result<Self, TrustError> {
        let Config {
            routes,
            timeouts,
            limits,
            llm_buffer,
        } = config;
        let upstreams = routes.iter().flat_map(|route| &route.upstreams);
        let tls = TlsClients::new(upstreams.map(|it| &it.target))?;
        let registry = RouteRegistry::new(UpstreamRegistry::new(observers.upstreams));
        let defaults = RouteDefaults {
            timeouts,
            max_body: limits.body_bytes,
        };
        let routes = Routes::new(routes, defaults, &registry);
        let bodies = BodyBuffer::new(llm_buffer);
        Ok(Self {
            policy: AdmissionPolicy::new(Arc::clone(&engine), routes, &bodies),
            engine,
            timeouts,
            limits,
            builders: HttpBuilders::new(&limits, &timeouts),
            forwarder: Forwarder {
                connections: Arc::new(ConnectionLimit::new(&limits, descriptors)),
                tls,
            },
            unrouted: Arc::new(ResponseCounts::new()),
            observer: observers.requests,
        })
    }

    /// Returns how all routes are doing, in the order of the config, and then the requests
    /// without a route.
    pub fn status(&self) -> Vec<RouteStatus> {
        let now = Instant::now();
        let routes = self.policy.routes().iter().map(|route| RouteStatus {
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
        let _checks = self.start_checks();
        let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
        while closing.run_until_cancelled(interval.tick()).await.is_some() {
            let now = Instant::now();
            for route in self.policy.routes() {
                route.counts.sample(now);
                for upstream in route.upstreams.upstreams() {
                    upstream.sample(now);
                }
            }
        }
    }

    /// Starts the active health checks.
    fn start_checks(self: &Arc<Self>) -> JoinSet<()> {
        let mut checks = JoinSet::new();
        for route in self.policy.routes() {
            for upstream in route.upstreams.upstreams() {
                let check = HealthCheck::of(route, upstream);
                if let Some(check) = check {
                    let gateway = Arc::clone(self);
                    checks.spawn(async move { check.run(&gateway.forwarder).await });
                }
            }
        }
        checks
    }

    /// Closes idle connections of this core to upstreams. Never returns.
    pub async fn close_idle_upstreams(&self) {
        pool::close_idle(&self.forwarder.connections, self.timeouts.idle).await;
    }
}

/// The smallest buffer that hyper supports.
const MIN_BUFFER: usize = 8 * 1024;
/// The largest head if there is no limit.
const MAX_HEAD: u64 = 1 << 30;

/// How hyper serves connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpBuilders {
    pub(crate) http1: http1::Builder,
    pub(crate) http2: http2::Builder<StreamExecutor>,
}

impl HttpBuilders {
    pub(crate) fn new(limits: &Limits, timeouts: &Timeouts) -> Self {
        let max_head = limits.header_bytes.map_or(MAX_HEAD, u64::from);
        let max_head = usize::try_from(max_head).unwrap_or(usize::MAX);
        let mut http1 = http1::Builder::new();
        // The connection has timeouts of its own.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_header_size(max_head)
            .max_buf_size(max_head.max(MIN_BUFFER));
        let idle = timeouts.idle;
        let mut http2 = http2::Builder::new(StreamExecutor { idle });
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(max_head).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.streams)
            .keep_alive_interval(Some(idle))
            .keep_alive_timeout(timeouts.headers);
        Self { http1, http2 }
    }
}
