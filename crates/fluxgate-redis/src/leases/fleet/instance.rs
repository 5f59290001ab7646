//! The instances: each has a real table of leases, and a keeper that does what the task of a
//! store does.

use fluxgate_core::store::{Checks, Verdicts};

use super::clock::Clock;
use crate::leases::lease_counts::LeaseCounts;
use crate::leases::lease_table::{LeaseTable, Owner, PendingAsk, can_cover};

/// How often a keeper looks at all leases within the shortest life, and the bounds of that.
const ROUNDS: u64 = 8;
const MIN_ROUND: u64 = 2_000;
const MAX_ROUND: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Instance {
    /// `None` while it is down.
    table: Option<LeaseTable>,
    clock: Clock,
    /// How often it has started. What belongs to an earlier start is ignored.
    pub(super) start: u32,
    /// Whether it gives back its units and asks for no more.
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

    /// Returns its table, unless it has ended since that start.
    pub(super) fn table_of(&self, start: u32) -> Option<&LeaseTable> {
        self.table.as_ref().filter(|_| self.start == start)
    }

    /// Ends it. Its units are lost until their leases end.
    pub(super) fn end(&mut self) -> Option<LeaseCounts> {
        self.start += 1;
        self.table.take().map(|table| table.counts())
    }

    /// Returns what its clock shows at a virtual time.
    pub(super) fn time(&self, now: u64) -> u64 {
        self.clock.at(now)
    }

    /// Decides a request by units on lease, as a store does. Sets `is_low` if the keeper is to
    /// be woken.
    pub(super) fn decide(
        &self,
        checks: &Checks<'_>,
        now: u64,
        is_low: &mut bool,
    ) -> Option<Verdicts> {
        let table = self.table.as_ref()?;
        if table.is_empty() || !can_cover(checks) {
            return None;
        }
        let mut verdicts = Verdicts::new();
        let is_decided = table.decide(checks, self.time(now), &mut verdicts, is_low);
        is_decided.then_some(verdicts)
    }

    /// Returns the asks that go with a request that the server decides.
    pub(super) fn asks(&self, checks: &Checks<'_>, now: u64) -> Vec<(usize, PendingAsk)> {
        match &self.table {
            Some(table) if can_cover(checks) && !self.is_closing => {
                table.asks(checks, self.time(now)).into_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the asks of the keeper.
    pub(super) fn due(&self, now: u64, is_round: bool) -> Vec<(Owner, PendingAsk)> {
        match &self.table {
            Some(table) if !self.is_closing => table.due(self.time(now), is_round),
            _ => Vec::new(),
        }
    }

    /// Returns the time until the keeper's next round.
    pub(super) fn round(&self) -> u64 {
        let shortest = self.table.as_ref().map(|table| {
            table.update_shortest();
            table.shortest()
        });
        shortest.map_or(MAX_ROUND, |life| {
            (life / ROUNDS).clamp(MIN_ROUND, MAX_ROUND)
        })
    }
}
