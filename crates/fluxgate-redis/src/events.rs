//! Counts and logs what happens to the servers of a store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::CallError;

/// Counts of what happened to the servers of a store.
#[derive(Debug, Default)]
pub(crate) struct Events {
    script_reloads: AtomicU64,
    script_reload_failures: AtomicU64,
    /// Whether the last attempt to load the script failed and was logged.
    is_reload_failing: AtomicBool,
    failovers: AtomicU64,
}

impl Events {
    pub(crate) fn script_reloads(&self) -> u64 {
        self.script_reloads.load(Ordering::Relaxed)
    }

    pub(crate) fn script_reload_failures(&self) -> u64 {
        self.script_reload_failures.load(Ordering::Relaxed)
    }

    pub(crate) fn failovers(&self) -> u64 {
        self.failovers.load(Ordering::Relaxed)
    }

    /// Records that a server without the script has loaded it.
    pub(crate) fn record_script_reload(&self, server: &str) {
        self.script_reloads.fetch_add(1, Ordering::Relaxed);
        self.is_reload_failing.store(false, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::counter!("fluxgate_store_script_reloads_total").increment(1);
        tracing::info!(server, "the script was missing and has been loaded");
    }

    /// Records that a server without the script has not loaded it. Decisions continue: they send
    /// the text of the script.
    pub(crate) fn record_script_reload_failure(&self, server: &str, error: CallError) {
        self.script_reload_failures.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::counter!("fluxgate_store_script_reload_failures_total").increment(1);
        // Every decision tries again, so only the first failure is logged.
        if !self.is_reload_failing.swap(true, Ordering::Relaxed) {
            let error = error.into_store_error();
            tracing::warn!(server, %error, "the script is missing and cannot be loaded");
        }
    }

    /// Records that another server has become the primary.
    pub(crate) fn record_failover(&self, primary: &str, from: &str, to: &str) {
        self.failovers.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::counter!("fluxgate_store_failovers_total").increment(1);
        tracing::warn!(primary, from, to, "failed over to another primary");
    }
}
