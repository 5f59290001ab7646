//! The state that the handlers share.

use std::sync::Arc;

use axum::extract::State;
use fluxgate_gateway::Gateway;
use fluxgate_http::HeaderFamilies;
use tokio_util::sync::CancellationToken;

use super::blocking_pool::BlockingPool;
use crate::admin::AdminAccess;
use crate::engine::{Engine, LiveFilters};
use crate::events::Events;
use crate::history::History;
use crate::instances::{InstanceSources, Instances};
use crate::live::LiveFeed;
use crate::recording::FleetRecordings;
use crate::telemetry::MetricSources;
use crate::usage::Usage;

/// The state as handlers extract it.
pub(super) type SharedState = State<Arc<ApiState>>;

/// The state that the handlers share.
#[derive(Debug)]
pub(crate) struct ApiState {
    pub(crate) engine: Arc<Engine>,
    /// Authorizes admin calls.
    pub(crate) admin: AdminAccess,
    /// The filters of `/v1/forward_auth`, which trust the proxies that call it.
    pub(super) filters: LiveFilters,
    pub(super) headers: HeaderFamilies,
    /// Validates rules that are written.
    pub(super) write_pool: BlockingPool,
    /// Validates, simulates and formats rules for callers that only read, so that a write need
    /// not wait for them.
    pub(super) read_pool: BlockingPool,
    pub(crate) live: LiveFeed,
    pub(crate) instances: Instances,
    pub(crate) usage: Usage,
    pub(super) recordings: FleetRecordings,
    /// What happened, if it is recorded.
    pub(crate) history: Option<Arc<History>>,
    pub(crate) events: Arc<Events>,
    /// The gateway, if it is served.
    pub(super) gateway: Option<Arc<Gateway<Engine>>>,
    /// Cancelled when the service shuts down.
    pub(crate) closing: CancellationToken,
}

impl ApiState {
    #[expect(clippy::too_many_arguments, reason = "each is a part of the service")]
    pub(crate) fn new(
        engine: Arc<Engine>,
        admin: AdminAccess,
        filters: LiveFilters,
        instances: Instances,
        history: Option<Arc<History>>,
        events: Arc<Events>,
        gateway: Option<Arc<Gateway<Engine>>>,
        closing: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            admin,
            filters,
            headers: HeaderFamilies::default(),
            write_pool: BlockingPool::default(),
            read_pool: BlockingPool::default(),
            live: LiveFeed::default(),
            usage: Usage::new(history.as_ref().map(|history| history.identities())),
            recordings: FleetRecordings::default(),
            instances,
            history,
            events,
            gateway,
            closing,
        })
    }

    /// Returns what metrics show besides counters.
    pub(crate) fn metric_sources(&self) -> MetricSources {
        let routes = self.gateway.as_ref().map(|gateway| gateway.status());
        MetricSources {
            store: self.engine.store().gauges(),
            events: self.events.gauges(),
            routes: routes.unwrap_or_default(),
        }
    }

    /// Returns what this instance reports about itself.
    pub(crate) fn sources(&self) -> InstanceSources<'_> {
        InstanceSources {
            engine: &self.engine,
            live: &self.live,
            events: &self.events,
        }
    }
}
