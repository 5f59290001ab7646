//! Leases: units of shared limits that this process holds and spends by itself.
//!
//! A request is decided by them if all its bands have enough; else the store decides it, and
//! the same call asks for units of the bands that are asked for often. A task, the keeper,
//! asks for more before they are spent, and returns unused ones. The proof that the limit
//! holds is in `fluxgate_core::internals::algorithm::grant`.

#[cfg(any(test, feature = "fleet"))]
pub mod fleet;
mod hot_keys;
mod kept_lease;
mod lease_clock;
mod lease_counts;
mod lease_shard;
mod lease_table;
mod recent_use;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fluxgate_core::StoreError;
use fluxgate_core::store::{Checks, Verdict, Verdicts};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::codec::{Answer, Request};
use crate::keys::KeyNaming;
use lease_clock::LeaseClock;
pub use lease_counts::LeaseCounts;
use lease_table::LeaseTable;
pub(crate) use lease_table::{LeaseKey, Owner, PendingAsk, can_cover};

/// The leases of a store.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) table: LeaseTable,
    clock: LeaseClock,
    /// Wakes the keeper.
    pub(crate) wake: Arc<Notify>,
    pub(crate) has_keeper: AtomicBool,
    /// Whether no more units are asked for, because the program is about to end.
    pub(crate) is_closing: AtomicBool,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            table: LeaseTable::default(),
            clock: LeaseClock::start(),
            wake: Arc::default(),
            has_keeper: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
        }
    }
}

impl Leases {
    /// Decides a request by units on lease. Returns false if only the store can.
    pub(crate) fn decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        if self.table.is_empty() || !can_cover(checks) {
            return false;
        }
        let mut is_low = false;
        let is_decided = self.table.decide(checks, self.now(), verdicts, &mut is_low);
        if is_low {
            self.wake.notify_one();
        }
        is_decided
    }

    /// Adds asks for units to a request that the store decides.
    pub(crate) fn add_asks<'l>(
        &'l self,
        checks: &Checks<'_>,
        request: &mut Request,
        naming: &KeyNaming,
    ) -> Option<SentAsks<'l>> {
        let is_closing = self.is_closing.load(Ordering::Acquire);
        if is_closing || !self.clock.is_available() || !can_cover(checks) {
            return None;
        }
        let shortest = self.table.shortest();
        let asks = self.table.asks(checks, self.now());
        if self.table.shortest() < shortest {
            // The keeper would come too late.
            self.wake.notify_one();
        }
        let mut sent = SentAsks {
            leases: self,
            asks: SmallVec::new(),
        };
        // The asks are in the order of the checks.
        for (at, pending) in asks {
            let check = &checks.list()[at];
            if let Some(lease) = check.band.lease() {
                let ask = &pending.ask;
                request.push_ask(Request::ask(check.subject, check.band, lease, ask, naming));
                sent.asks.push((at, pending));
            }
        }
        Some(sent)
    }

    /// Returns what has happened to leases so far.
    pub(crate) fn counts(&self) -> LeaseCounts {
        self.table.counts()
    }

    /// Lets no refusal hold any more: units may have been returned.
    pub(crate) fn forget_refusals(&self) {
        self.table.forget_refusals();
    }

    /// Returns whether there are leases, but no task that keeps them.
    pub(crate) fn needs_keeper(&self) -> bool {
        !self.table.is_empty() && !self.has_keeper.load(Ordering::Acquire)
    }

    /// Returns the time that the table counts in.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }
}

/// Asks on their way. Those that get no answer may be asked again.
pub(crate) struct SentAsks<'l> {
    leases: &'l Leases,
    /// With the index of the check.
    asks: SmallVec<[(usize, PendingAsk); 2]>,
}

impl SentAsks<'_> {
    /// Adds the units that were granted, and notes what the store decided.
    pub(crate) fn answered(
        mut self,
        checks: &Checks<'_>,
        answer: &Answer,
        verdicts: &mut [Verdict],
    ) -> Result<(), StoreError> {
        let table = &self.leases.table;
        let now = self.leases.now();
        let mut refused = SmallVec::<[_; 2]>::new();
        let mut answers = answer.asks().iter();
        while let (Some(answer), Some((at, pending))) = (answers.next(), self.asks.first()) {
            let (Ok(answer), Some(lease)) = (answer, checks.list()[*at].band.lease()) else {
                // Left to be dropped, with those behind it.
                break;
            };
            let granted = answer.granted(lease)?;
            table.granted(lease, pending, &granted, now);
            if granted.grant.units == 0 {
                refused.push(pending.key);
            }
            self.asks.remove(0);
        }
        table.decided(checks, &refused, verdicts, now);
        Ok(())
    }
}

impl Drop for SentAsks<'_> {
    fn drop(&mut self) {
        for (_, pending) in &self.asks {
            self.leases.table.unanswered(pending.key);
        }
    }
}
