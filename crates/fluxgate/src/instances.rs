//! The instances of the service: this one, and those that share its Redis.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::live::LiveFeed;
use crate::telemetry::unix_time;

/// The interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// This instance, which lists the others by their heartbeats.
#[derive(Debug)]
pub(crate) struct Instances {
    id: String,
    hostname: String,
    started: Duration,
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
}

impl Default for Instances {
    fn default() -> Self {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname");
        Self {
            id: format!("{:016x}", RandomState::new().hash_one(0)),
            hostname: hostname.unwrap_or_default().trim().to_owned(),
            started: unix_time(),
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

    fn info(&self, engine: &Engine, live: &LiveFeed) -> InstanceInfo {
        let load = live.load();
        InstanceInfo {
            hostname: self.hostname.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            revision: engine.revision(),
            started_ms: self.started.as_millis() as u64,
            decisions_per_second: load.decisions,
            denied_per_second: load.denied,
        }
    }

    /// Sends heartbeats until the service closes.
    pub(crate) async fn keep_alive(
        &self,
        engine: &Engine,
        live: &LiveFeed,
        closing: &CancellationToken,
    ) {
        let Some(store) = engine.store().redis() else {
            return;
        };
        let heartbeats = store.heartbeats();
        loop {
            let info = json!(self.info(engine, live)).to_string();
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
    pub(crate) async fn list(&self, engine: &Engine, live: &LiveFeed) -> Value {
        let info = self.info(engine, live);
        let now = unix_time();
        let beats = match engine.store().redis() {
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
