//! What a reload of the config applies beside the rules: filters, the gateway's routes, and
//! certificates.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_gateway::{Gateway, PreparedConfig};
use fluxgate_http::server::Listener;
use futures_util::future::BoxFuture;

use super::gateway;
use crate::config::{self, Config, RawConfig};
use crate::engine::{Engine, Filters, LiveFilters};
use crate::events::Events;
use crate::reload::{PreparedSettings, ReloadError, Settings};
use crate::serve::{ListenerTls, LoadedCertificate};

/// How long the start and a reload wait for the keys that verify tokens. Without keys, all tokens
/// are invalid.
pub(super) const KEY_WAIT: Duration = Duration::from_secs(2);

/// The maximum number of changes that are logged for one reload.
const MAX_LINES: usize = 20;

/// The active settings, and what uses them.
#[derive(Debug)]
pub(super) struct LiveSettings {
    pub(super) gateway: Option<Arc<Gateway<Engine>>>,
    /// The filters of the API.
    pub(super) api_filters: LiveFilters,
    /// The filters of external authorization, over gRPC.
    pub(super) grpc_filters: LiveFilters,
    pub(super) tls: [Option<ListenerTls>; Listener::ALL.len()],
    pub(super) events: Arc<Events>,
    /// The timeout of heads, which belongs to the listener.
    pub(super) headers_timeout: Duration,
    pub(super) active: Mutex<ActiveSettings>,
}

/// The active settings.
#[derive(Debug)]
pub(super) struct ActiveSettings {
    pub(super) raw: RawConfig,
    pub(super) filters: Filters,
    pub(super) filter_configs: Vec<config::Filter>,
}

/// Settings that can be applied.
#[derive(Debug)]
struct Prepared {
    live: Arc<LiveSettings>,
    settings: ActiveSettings,
    /// The filters that are not active yet.
    new_filters: Filters,
    gateway: Option<PreparedConfig>,
    certificates: BTreeMap<usize, LoadedCertificate>,
    changes: Vec<String>,
    routes: usize,
}

impl LiveSettings {
    fn lock(&self) -> MutexGuard<'_, ActiveSettings> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a file that has lost a part, as one that is being written may have. It would
    /// otherwise lift limits or forward nothing.
    fn refuse_truncated(&self, raw: &RawConfig, config: &Config) -> Result<(), ReloadError> {
        let missing = if self.gateway.is_some() && config.gateway.routes.is_empty() {
            "`gateway.routes` is missing, and the gateway is open"
        } else if !raw.names("filters") && self.lock().raw.names("filters") {
            "`filters` is missing; write `filters: {}` to remove all filters"
        } else {
            return Ok(());
        };
        Err(ReloadError::Invalid(vec![raw.in_file(missing)]))
    }
}

impl Settings for LiveSettings {
    fn prepare(
        self: Arc<Self>,
        raw: &RawConfig,
        mut config: Config,
    ) -> Result<Option<Box<dyn PreparedSettings>>, ReloadError> {
        self.refuse_truncated(raw, &config)?;
        let invalid = |error: &dyn std::fmt::Display| {
            ReloadError::Invalid(vec![raw.in_file(&error.to_string())])
        };
        let (changes, filters, new_filters) = {
            let active = self.lock();
            let changes = raw.settings_changed_since(&active.raw);
            if changes.is_empty() {
                return Ok(None);
            }
            let is_same = |name: &str| raw.has_same_filter(name, &active.raw);
            let filters = active.filters.changed_to(&config, is_same);
            let filters = filters.map_err(|error| invalid(&error))?;
            let new = filters.not_in(&active.filters);
            (changes, filters, new)
        };
        config.gateway.timeouts.headers = self.headers_timeout;
        let gateway = match &self.gateway {
            Some(_) => {
                let config = gateway::config_of(&config, &filters);
                let config = config.map_err(|error| invalid(&error))?;
                let prepared = PreparedConfig::new(config);
                Some(prepared.map_err(|error| invalid(&error))?)
            }
            None => None,
        };
        let mut certificates = BTreeMap::new();
        for (index, tls) in self.tls.iter().enumerate() {
            let loaded = tls.as_ref().map(|tls| tls.load_other(&config));
            let loaded = loaded.transpose().map_err(|error| invalid(&error))?;
            certificates.extend(loaded.flatten().map(|it| (index, it)));
        }
        let prepared = Prepared {
            gateway,
            certificates,
            changes,
            new_filters,
            routes: config.gateway.routes.len(),
            settings: ActiveSettings {
                raw: raw.clone(),
                filters,
                filter_configs: config.filters,
            },
            live: self,
        };
        Ok(Some(Box::new(prepared)))
    }

    fn filters(&self) -> Vec<config::Filter> {
        self.lock().filter_configs.clone()
    }
}

impl PreparedSettings for Prepared {
    fn load(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.new_filters.load_keys(KEY_WAIT))
    }

    fn apply(self: Box<Self>) {
        let Self {
            live,
            settings,
            gateway,
            certificates,
            changes,
            routes,
            ..
        } = *self;
        let for_api = settings.filters.trusting_their_peers();
        let for_grpc = settings.filters.clone();
        let (filters, text) = (settings.filters.count(), settings.raw.settings_text());
        *live.lock() = settings;
        live.api_filters.replace(for_api);
        live.grpc_filters.replace(for_grpc);
        if let (Some(gateway), Some(prepared)) = (&live.gateway, gateway) {
            gateway.reload(prepared);
        }
        for (listener, certificate) in certificates {
            if let Some(Some(tls)) = live.tls.get(listener) {
                tls.replace(certificate);
            }
        }
        live.events.record_new_settings(&changes, &text);
        for change in changes.iter().take(MAX_LINES) {
            tracing::info!(change, "settings changed");
        }
        let more = changes.len().saturating_sub(MAX_LINES);
        if more > 0 {
            tracing::info!(more, "more settings changed");
        }
        tracing::info!(routes, filters, "settings are active");
    }
}
