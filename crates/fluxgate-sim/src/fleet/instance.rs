//! The instances: each has a real table of leases, and a keeper like that of a store.

use fluxgate_core::store::{Checks, Verdicts};

use fluxgate_redis::lease::{CheckRequest, DueRequest, LeaseCounts, LeaseTable, is_leasable};

use crate::clock::Clock;

/// How often a keeper looks at all leases within the shortest span, and the bounds of a round.
const ROUNDS: u64 = 8;
const MIN_ROUND: u64 = 2_000;
const MAX_ROUND: u64 = 1_000_000;

/// An instance of the fleet.
#[derive(Debug)]
pub(super) struct Instance {
    /// `None` while it is down.
    table: Option<LeaseTable>,
    clock: Clock,
    /// How often it has started. What belongs to an earlier start is ignored.
    pub(super) start: u32,
    /// Whether it returns its units and requests no more.
    pub(super) is_closing: bool,
    /// Whether its keeper runs.
    pub(super) has_keeper: bool,
    /// Whether its keeper has been woken and has not run since.
    pub(super) is_woken: bool,
}

impl Instance {
    pub(super) fn new(clock: Clock, start: u32) -> Self {
        Self {
            table: Some(LeaseTable::default()),
            clock,
            start,
            is_closing: false,
            has_keeper: false,
            is_woken: false,
        }
    }

    /// Returns its table, unless it is down.
    pub(super) fn table(&self) -> Option<&LeaseTable> {
        self.table.as_ref()
    }

    /// Returns its table, if it is up and has not restarted since.
    pub(super) fn table_of(&self, start: u32) -> Option<&LeaseTable> {
        self.table.as_ref().filter(|_| self.start == start)
    }

    /// Ends it. Its units are lost until their leases end.
    pub(super) fn end(&mut self) -> Option<LeaseCounts> {
        self.start += 1;
        self.table.take().map(|table| table.counts())
    }

    /// Returns its time at a virtual time.
    pub(super) fn time(&self, now: u64) -> u64 {
        self.clock.at(now)
    }

    /// Decides a request by units on lease, as a store does. Returns the verdicts, and whether
    /// to wake the keeper.
    pub(super) fn decide(&self, checks: &Checks<'_>, now: u64) -> Option<(Verdicts, bool)> {
        let table = self.table.as_ref()?;
        if table.is_empty() || !is_leasable(checks) {
            return None;
        }
        let mut verdicts = Verdicts::new();
        let decision = table.decide(checks, self.time(now), &mut verdicts)?;
        Some((verdicts, decision.is_low))
    }

    /// Returns the lease requests to send with a request that the server decides.
    pub(super) fn requests_with(&self, checks: &Checks<'_>, now: u64) -> Vec<CheckRequest> {
        match &self.table {
            Some(table) if is_leasable(checks) && !self.is_closing => {
                table.requests_with(checks, self.time(now)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the requests of the keeper.
    pub(super) fn due_requests(&self, now: u64, is_round: bool) -> Vec<DueRequest> {
        match &self.table {
            Some(table) if !self.is_closing => table.due_requests(self.time(now), is_round),
            _ => Vec::new(),
        }
    }

    /// Returns the time until the keeper's next round.
    pub(super) fn round(&self) -> u64 {
        let shortest = self.table.as_ref().map(|table| {
            table.update_shortest_span();
            table.shortest_span()
        });
        shortest.map_or(MAX_ROUND, |span| {
            (span / ROUNDS).clamp(MIN_ROUND, MAX_ROUND)
        })
    }
}
