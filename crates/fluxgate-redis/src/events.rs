//! Counts and logs what happens to the servers of a store.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters for a store and all of its servers.
#[derive(Debug, Default)]
pub(crate) struct Events {
    script_reloads: AtomicU64,
    failovers: AtomicU64,
}

impl Events {
    pub(crate) fn script_reloads(&self) -> u64 {
        self.script_reloads.load(Ordering::Relaxed)
    }

    pub(crate) fn failovers(&self) -> u64 {
        self.failovers.load(Ordering::Relaxed)
    }

    /// Records that a server without the script has loaded it.
    pub(crate) fn script_reloaded(&self, server: &str) {
        self.script_reloads.fetch_add(1, Ordering::Relaxed);
        tracing::info!(server, "the script was missing and has been loaded");
    }

    /// Records that another server has become the primary.
    pub(crate) fn failed_over(&self, primary: &str, from: &str, to: &str) {
        self.failovers.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(primary, from, to, "failed over to another primary");
    }
}
