//! The outcome of a run.

use fluxgate_redis::lease::LeaseCounts;

/// What a fleet did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetOutcome {
    /// Requests.
    pub decisions: u64,
    /// Requests that instances decided by their leases.
    pub local: u64,
    /// Requests that got no answer in time.
    pub unanswered: u64,
    /// Units of the requests that were admitted.
    pub admitted: u64,
    /// Units that one limiter would admit if it saw all requests at once.
    pub possible: u64,
    /// Calls to the server, those of keepers included.
    pub calls: u64,
    /// Calls of keepers.
    pub keeper_calls: u64,
    /// Units granted.
    pub granted: u64,
    /// Units returned.
    pub returned: u64,
    /// Units that instances held when their lease ended, or when they crashed.
    pub expired: u64,
    /// The most units by which a limit was exceeded.
    pub overshoot: u64,
    /// Instances that crashed.
    pub crashes: u64,
    /// How often the server lost its data.
    pub data_losses: u64,
}

impl FleetOutcome {
    /// Adds the counts of an instance that has ended.
    pub(super) fn add(&mut self, counts: LeaseCounts) {
        self.granted += counts.granted;
        self.returned += counts.returned;
        self.expired += counts.expired + counts.on_lease;
    }
}
