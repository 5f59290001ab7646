//! Counts and logs what happens to the servers of a store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fluxgate_core::StoreError;

use crate::error::CallError;

/// Counts of what happened to the servers of a store.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) script_reloads: AtomicU64,
    pub(crate) script_reload_failures: AtomicU64,
    /// Whether the last attempt to load the script failed and was logged.
    is_reload_failing: AtomicBool,
    pub(crate) failovers: AtomicU64,
}

impl Events {
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
            let error = StoreError::from(error);
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
