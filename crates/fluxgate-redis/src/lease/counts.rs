//! Counts of leases, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::algorithm::LeaseRequest;

/// What has happened to leases since the store was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// Requests allowed by units on lease.
    pub allowed: u64,
    /// Requests denied without a call to the server, shortly after it denied one.
    pub denied: u64,
    /// Lease requests sent to the server, including those that only return units.
    pub requests: u64,
    /// Units granted.
    pub granted: u64,
    /// Units returned.
    pub returned: u64,
    /// Units whose lease ended before they were spent.
    pub expired: u64,
    /// Units on lease now.
    pub on_lease: u64,
}

/// The counts that are not kept by shard.
#[derive(Debug, Default)]
pub(super) struct UnitCounts {
    requests: AtomicU64,
    granted: AtomicU64,
    returned: AtomicU64,
}

impl UnitCounts {
    pub(super) fn add_request(&self, request: &LeaseRequest) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let reports = request.reports().iter();
        let returned = reports.map(|report| u64::from(report.returned)).sum();
        self.returned.fetch_add(returned, Ordering::Relaxed);
    }

    pub(super) fn add_granted(&self, units: u32) {
        self.granted.fetch_add(units.into(), Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> LeaseCounts {
        LeaseCounts {
            requests: self.requests.load(Ordering::Relaxed),
            granted: self.granted.load(Ordering::Relaxed),
            returned: self.returned.load(Ordering::Relaxed),
            ..LeaseCounts::default()
        }
    }
}
