//! The instances of the service: this one, and those that share its Redis.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::events::Events;
use crate::live::{LiveFeed, store_words};
use crate::telemetry::unix_time;

/// The interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// This instance, which lists the others by their heartbeats.
#[derive(Debug)]
pub(crate) struct Instances {
    id: String,
    hostname: String,
    started: Duration,
    /// Where the API listens.
    address: OnceLock<String>,
}

/// What an instance can report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstanceSources<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) live: &'a LiveFeed,
    pub(crate) events: &'a Events,
}

/// The heartbeat of an instance.
#[derive(Debug, Serialize, Deserialize)]
struct InstanceInfo {
    hostname: String,
    version: String,
    revision: String,
    started_ms: u64,
    decisions_per_second: f64,
    denied_per_second: f64,
    // Older versions do not write the rest.
    address: Option<String>,
    waiting: Option<u64>,
    slots: Option<u64>,
    leased_units: Option<u64>,
    store: Option<StoreInfo>,
    #[serde(default)]
    webhooks: Vec<WebhookInfo>,
}

/// The store as an instance sees it.
#[derive(Debug, Serialize, Deserialize)]
struct StoreInfo {
    kind: String,
    breaker: String,
}

/// A webhook that an instance sends events to.
#[derive(Debug, Serialize, Deserialize)]
struct WebhookInfo {
    server: String,
    queued: u64,
    is_failing: bool,
}

impl Default for Instances {
    fn default() -> Self {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname");
        Self {
            id: format!("{:016x}", RandomState::new().hash_one(0)),
            hostname: hostname.unwrap_or_default().trim().to_owned(),
            started: unix_time(),
            address: OnceLock::new(),
        }
    }
}

impl Instances {
    /// Returns the random id of this instance.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the name of the host.
    pub(crate) fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Sets the address at which the API listens, once it is known.
    pub(crate) fn set_address(&self, address: SocketAddr) {
        let address = if address.ip().is_unspecified() {
            format!("{}:{}", self.hostname, address.port())
        } else {
            address.to_string()
        };
        // It is set once.
        let _ = self.address.set(address);
    }

    fn info(&self, sources: InstanceSources<'_>) -> InstanceInfo {
        let InstanceSources {
            engine,
            live,
            events,
        } = sources;
        let load = live.load();
        let gauges = engine.store().gauges();
        let (kind, breaker) = store_words(&gauges);
        let webhooks = events.gauges().webhooks.into_iter();
        InstanceInfo {
            hostname: self.hostname.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            revision: engine.revision(),
            started_ms: self.started.as_millis() as u64,
            decisions_per_second: load.decisions,
            denied_per_second: load.denied,
            address: self.address.get().cloned(),
            waiting: Some(load.waiting),
            slots: Some(load.slots),
            leased_units: gauges.leases.map(|leases| leases.on_lease),
            store: Some(StoreInfo {
                kind: kind.into(),
                breaker: breaker.into(),
            }),
            webhooks: webhooks
                .map(|webhook| WebhookInfo {
                    server: webhook.server,
                    queued: webhook.queued,
                    is_failing: webhook.is_failing,
                })
                .collect(),
        }
    }

    /// Sends heartbeats until the service closes.
    pub(crate) async fn keep_alive(
        &self,
        sources: InstanceSources<'_>,
        closing: &CancellationToken,
    ) {
        let Some(store) = sources.engine.store().redis() else {
            return;
        };
        let heartbeats = store.heartbeats();
        loop {
            let info = json!(self.info(sources)).to_string();
            // Failures show up in the breaker state.
            let _ = heartbeats.beat(&self.id, &info).await;
            tokio::select! {
                () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {}
                () = closing.cancelled() => break,
            }
        }
        let _ = heartbeats.leave(&self.id).await;
    }

    /// Returns all instances as JSON, by id. If the store fails, only this one is known.
    pub(crate) async fn list(&self, sources: InstanceSources<'_>) -> Value {
        let info = self.info(sources);
        let now = unix_time();
        let beats = match sources.engine.store().redis() {
            Some(store) => {
                let text = json!(info).to_string();
                store.heartbeats().beat(&self.id, &text).await
            }
            None => Ok(Vec::new()),
        };
        let mut instances = vec![entry(&self.id, &info, now, true)];
        let (beats, failure) = match beats {
            Ok(beats) => (beats, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        for beat in beats.iter().filter(|beat| beat.id != self.id) {
            // Other versions may write something else.
            if let Ok(info) = serde_json::from_str(&beat.text) {
                instances.push(entry(&beat.id, &info, now.saturating_sub(beat.age), false));
            }
        }
        json!({ "instances": instances, "failure": failure })
    }
}

fn entry(id: &str, info: &InstanceInfo, seen: Duration, is_self: bool) -> Value {
    let mut entry = json!(info);
    entry["id"] = id.into();
    entry["seen_ms"] = (seen.as_millis() as u64).into();
    entry["is_self"] = is_self.into();
    entry
}
