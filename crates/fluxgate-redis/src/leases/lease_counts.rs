//! Counts of leases, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::internals::algorithm::Ask;

/// What has happened to leases since the store was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// Requests allowed by units on lease.
    pub allowed: u64,
    /// Requests denied without asking the store, shortly after it denied one.
    pub denied: u64,
    /// Asks for units, or with returned units, sent to the store.
    pub asks: u64,
    /// Units granted.
    pub granted: u64,
    /// Units returned.
    pub returned: u64,
    /// Units that ended before they were spent.
    pub expired: u64,
    /// Units on lease here now.
    pub on_lease: u64,
}

#[derive(Debug, Default)]
pub(super) struct UnitCounts {
    asks: AtomicU64,
    granted: AtomicU64,
    returned: AtomicU64,
}

impl UnitCounts {
    pub(super) fn asked(&self, ask: &Ask) {
        self.asks.fetch_add(1, Ordering::Relaxed);
        let returned = ask.reports.iter().map(|report| u64::from(report.returned));
        self.returned.fetch_add(returned.sum(), Ordering::Relaxed);
    }

    pub(super) fn granted(&self, units: u32) {
        self.granted.fetch_add(units.into(), Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> LeaseCounts {
        LeaseCounts {
            asks: self.asks.load(Ordering::Relaxed),
            granted: self.granted.load(Ordering::Relaxed),
            returned: self.returned.load(Ordering::Relaxed),
            ..LeaseCounts::default()
        }
    }
}
