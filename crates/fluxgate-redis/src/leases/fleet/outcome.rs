//! What a fleet has done.

use crate::leases::lease_counts::LeaseCounts;

/// What a fleet has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests.
    pub decisions: u64,
    /// Requests that instances decided by themselves.
    pub local: u64,
    /// Requests that got no answer in time.
    pub unanswered: u64,
    /// Units of the requests that were admitted.
    pub admitted: u64,
    /// Units of the requests that one limiter that sees all of them at once admits.
    pub possible: u64,
    /// Calls to the server: to decide a request, or of a keeper.
    pub calls: u64,
    /// Calls of keepers.
    pub keeper_calls: u64,
    /// Units granted.
    pub granted: u64,
    /// Units given back.
    pub returned: u64,
    /// Units that instances held when their lease ended, or when they crashed.
    pub expired: u64,
    /// The most units by which a limit was exceeded.
    pub overshoot: u64,
    /// Instances that crashed.
    pub crashes: u64,
    /// How often the server lost all that it knew.
    pub data_losses: u64,
}

impl Outcome {
    /// Adds the counts of an instance that has ended.
    pub(super) fn add(&mut self, counts: LeaseCounts) {
        self.granted += counts.granted;
        self.returned += counts.returned;
        self.expired += counts.expired + counts.on_lease;
    }
}
