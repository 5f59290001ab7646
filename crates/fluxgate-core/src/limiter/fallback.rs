//! Decisions when the store fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::decision::Decision;
use crate::memory::MemoryStore;
use crate::observer::Stopwatch;
use crate::rules::OnError;
use crate::store::{Checks, LocalStore, StoreError, Verdicts};

/// The least time between two outages that are logged: a store that fails now and then must not
/// fill the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Decides when the store fails, and logs each outage once.
#[derive(Debug)]
pub(super) struct Fallback {
    /// The embedded store, which is created when it is needed.
    store: OnceLock<MemoryStore>,
    /// Whether outages are logged here, and not by an observer.
    pub(super) is_logged: bool,
    /// Whether the store has failed since it last answered, and that was logged.
    in_logged_outage: AtomicBool,
    last_logged: Mutex<Option<Stopwatch>>,
}

/// The decision after the store failed.
#[expect(
    clippy::large_enum_variant,
    reason = "it is used up at once, and a decision without the store must not allocate for it"
)]
pub(crate) enum FallbackDecision {
    /// The same for every request.
    Fixed(Decision),
    /// The verdicts of the embedded store.
    Local(Verdicts),
}

impl Fallback {
    pub(super) fn new() -> Self {
        Self {
            store: OnceLock::new(),
            is_logged: true,
            in_logged_outage: AtomicBool::new(false),
            last_logged: Mutex::default(),
        }
    }

    /// Logs that the store failed, if this is the first failure of an outage.
    pub(super) fn log_failure(&self, error: &StoreError, on_error: OnError) {
        if !self.is_logged || self.in_logged_outage.load(Ordering::Relaxed) {
            return;
        }
        // If another thread holds the lock, it logs the same outage.
        let Ok(mut last) = self.last_logged.try_lock() else {
            return;
        };
        if last.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            *last = Some(Stopwatch::start());
            self.in_logged_outage.store(true, Ordering::Relaxed);
            log_outage(error, on_error);
        }
    }

    /// Ends an outage, if there is one: the store has answered.
    pub(super) fn store_answered(&self) {
        if self.in_logged_outage.load(Ordering::Relaxed) {
            self.in_logged_outage.store(false, Ordering::Relaxed);
            log_end_of_outage();
        }
    }

    pub(super) fn decide(&self, on_error: OnError, checks: &Checks<'_>) -> FallbackDecision {
        match on_error {
            OnError::Allow => FallbackDecision::Fixed(Decision::failed_open()),
            OnError::Deny => FallbackDecision::Fixed(Decision::failed_closed()),
            OnError::Local => {
                let store = self.store.get_or_init(MemoryStore::default);
                FallbackDecision::Local(store.decide_now(checks))
            }
        }
    }

    /// Returns the embedded store, once it was needed. It knows only what it charged itself
    /// while the store failed.
    pub(super) fn store(&self) -> Option<&MemoryStore> {
        self.store.get()
    }
}

#[cfg(feature = "tracing")]
fn log_outage(error: &StoreError, on_error: OnError) {
    let requests = match on_error {
        OnError::Allow => "allowed",
        OnError::Deny => "denied",
        OnError::Local => "limited by this process alone",
    };
    tracing::warn!(target: "fluxgate", %error, requests, "the store fails");
}

#[cfg(not(feature = "tracing"))]
fn log_outage(_: &StoreError, _: OnError) {}

#[cfg(feature = "tracing")]
fn log_end_of_outage() {
    tracing::info!(target: "fluxgate", "the store answers again");
}

#[cfg(not(feature = "tracing"))]
fn log_end_of_outage() {}
