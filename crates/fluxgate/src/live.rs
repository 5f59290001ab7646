//! The live view: the counts of each second, for all viewers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::telemetry::{LiveSecond, StoreGauges};

const SECOND: Duration = Duration::from_secs(1);
/// The load is the average over about this many seconds.
const LOAD_SECONDS: f64 = 5.0;
/// How many viewers get an event at once. Waking all of them would delay decisions.
const WAVE: usize = 16;
const WAVE_INTERVAL: Duration = Duration::from_millis(4);
/// The last wave ends before the next event.
const MAX_WAVES: usize = 200;

/// Publishes one event a second. All viewers share it, and one that is slow misses some.
#[derive(Debug)]
pub(crate) struct LiveFeed {
    /// As it is sent. `None` before the first event, and when the service closes.
    events: watch::Sender<Option<Bytes>>,
    load: Mutex<Load>,
}

/// A subscriber of the live view.
#[derive(Debug)]
pub(crate) struct Viewer {
    events: watch::Receiver<Option<Bytes>>,
    delay: Duration,
}

/// The decisions of this process per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) decisions: f64,
    pub(crate) denied: f64,
    /// The requests that wait now.
    pub(crate) waiting: u64,
    /// The slots that are held through this process now.
    pub(crate) slots: u64,
}

#[derive(Serialize)]
struct LiveEvent<'e> {
    #[serde(flatten)]
    second: &'e LiveSecond,
    revision: String,
    store: StoreState,
    leases: Option<LeaseState>,
}

#[derive(Serialize)]
struct StoreState {
    kind: &'static str,
    breaker: &'static str,
    keys: Option<u64>,
}

#[derive(Serialize)]
struct LeaseState {
    allowed: u64,
    denied: u64,
    units: u64,
}

impl Default for LiveFeed {
    fn default() -> Self {
        Self {
            events: watch::Sender::new(None),
            load: Mutex::default(),
        }
    }
}

impl LiveFeed {
    /// Publishes events until the service closes.
    pub(crate) async fn run(&self, engine: &Engine, closing: &CancellationToken) {
        let mut reader = engine.telemetry().live_reader();
        let mut leases = engine.store().gauges().leases;
        let mut seconds = tokio::time::interval(SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = seconds.tick() => {}
                () = closing.cancelled() => break,
            }
            let gauges = engine.store().gauges();
            let is_shared = gauges.memory_keys.is_none();
            let second = engine.telemetry().read_live(&mut reader, is_shared);
            self.add_load(&second);
            let last = std::mem::replace(&mut leases, gauges.leases);
            let event = LiveEvent {
                second: &second,
                revision: engine.revision(),
                store: store_state(&gauges),
                leases: gauges.leases.zip(last).map(|(now, last)| LeaseState {
                    allowed: now.allowed - last.allowed,
                    denied: now.denied - last.denied,
                    units: now.on_lease,
                }),
            };
            // Numbers and texts can always be written as JSON.
            let event = serde_json::to_string(&event).unwrap_or_default();
            let event = format!("data: {event}\n\n");
            self.events.send_replace(Some(event.into()));
        }
        self.events.send_replace(None);
    }

    /// Adds a viewer, who gets the last event at once.
    pub(crate) fn add_viewer(&self) -> Viewer {
        let waves = self.events.receiver_count() / WAVE;
        let mut events = self.events.subscribe();
        events.mark_changed();
        Viewer {
            events,
            delay: WAVE_INTERVAL * waves.min(MAX_WAVES) as u32,
        }
    }

    /// Returns the load of this process, rounded to tenths.
    #[expect(
        clippy::float_arithmetic,
        reason = "only to be looked at; no decision depends on it"
    )]
    pub(crate) fn load(&self) -> Load {
        let load = *self.load.lock().unwrap_or_else(PoisonError::into_inner);
        let rounded = |number: f64| (number * 10.0).round() / 10.0;
        Load {
            decisions: rounded(load.decisions),
            denied: rounded(load.denied),
            ..load
        }
    }

    #[expect(
        clippy::float_arithmetic,
        reason = "only to be looked at; no decision depends on it"
    )]
    fn add_load(&self, second: &LiveSecond) {
        let (decisions, denied) = second.load();
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        let average = |before: f64, now: u64| before + (now as f64 - before) / LOAD_SECONDS;
        *load = Load {
            decisions: average(load.decisions, decisions),
            denied: average(load.denied, denied),
            waiting: second.waiting,
            slots: second.slots,
        };
    }
}

impl Viewer {
    /// Returns the next event as it is sent; `None` when the service closes.
    pub(crate) async fn next(&mut self, closing: &CancellationToken) -> Option<Bytes> {
        loop {
            self.events.changed().await.ok()?;
            if !self.delay.is_zero() {
                tokio::time::sleep(self.delay).await;
            }
            let event = self.events.borrow_and_update().clone();
            if event.is_some() || closing.is_cancelled() {
                return event;
            }
        }
    }
}

/// Returns the kind of the store and the state of its breaker.
pub(crate) fn store_words(gauges: &StoreGauges) -> (&'static str, &'static str) {
    let kind = match gauges.memory_keys {
        Some(_) => "memory",
        None => "redis",
    };
    let breaker = match gauges.breaker {
        0 => "closed",
        1 => "half_open",
        _ => "open",
    };
    (kind, breaker)
}

fn store_state(gauges: &StoreGauges) -> StoreState {
    let (kind, breaker) = store_words(gauges);
    StoreState {
        kind,
        breaker,
        keys: gauges.memory_keys,
    }
}
