//! Leases against Redis: decides requests by units on lease, and requests leases together with
//! decisions of the server.
//!
//! The server decides a request that leases do not cover, and the same call requests units of
//! bands that are used often. A task, the keeper (`lease_keeper.rs`), requests more before they
//! are spent, and returns unused ones.

mod clock;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fluxgate_core::StoreError;
use fluxgate_core::store::{Checks, Verdict, Verdicts};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::codec::{Answer, Request};
use crate::keys::KeyNaming;
use crate::lease::{CheckRequest, LeaseCounts, LeaseTable, is_leasable};
use clock::LeaseClock;

/// The leases of a store.
#[derive(Debug)]
pub(crate) struct LeaseClient {
    pub(crate) table: LeaseTable,
    clock: LeaseClock,
    /// Wakes the keeper.
    pub(crate) wake: Arc<Notify>,
    pub(crate) has_keeper: AtomicBool,
    /// Whether no more units are requested, because the program is about to end.
    pub(crate) is_closing: AtomicBool,
}

impl Default for LeaseClient {
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

impl LeaseClient {
    /// Decides a request by units on lease. Returns `false` if only the server can.
    pub(crate) fn decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        if self.table.is_empty() || !is_leasable(checks) {
            return false;
        }
        let decision = self.table.decide(checks, self.now(), verdicts);
        if decision.is_some_and(|decision| decision.is_low) {
            self.wake.notify_one();
        }
        decision.is_some()
    }

    /// Adds lease requests to a request that the server decides.
    pub(crate) fn add_lease_requests<'l>(
        &'l self,
        checks: &Checks<'_>,
        request: &mut Request,
        naming: &KeyNaming,
    ) -> Option<SentLeaseRequests<'l>> {
        let is_closing = self.is_closing.load(Ordering::Acquire);
        if is_closing || !self.clock.is_available() || !is_leasable(checks) {
            return None;
        }
        let shortest = self.table.shortest_span();
        let mut sent = SentLeaseRequests {
            client: self,
            requests: self.table.requests_with(checks, self.now()).collect(),
        };
        if self.table.shortest_span() < shortest {
            // The next round of the keeper would come too late.
            self.wake.notify_one();
        }
        sent.requests.retain(|sent| {
            let check = &checks.list()[sent.check];
            let Some(lease) = check.band.lease() else {
                return false;
            };
            let asked = &sent.pending.request;
            request.add_lease_request(Request::lease(
                check.subject,
                check.band,
                lease,
                asked,
                naming,
            ));
            true
        });
        Some(sent)
    }

    /// Returns what has happened to leases so far.
    pub(crate) fn counts(&self) -> LeaseCounts {
        self.table.counts()
    }

    /// Returns whether there are leases, but no task that keeps them.
    pub(crate) fn needs_keeper(&self) -> bool {
        !self.table.is_empty() && !self.has_keeper.load(Ordering::Acquire)
    }

    /// Returns the time by the clock of the table.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }
}

/// Lease requests on their way. Those without an answer are recorded as such on drop.
pub(crate) struct SentLeaseRequests<'l> {
    client: &'l LeaseClient,
    requests: SmallVec<[CheckRequest; 2]>,
}

impl SentLeaseRequests<'_> {
    /// Adds the units that were granted, and records what the server decided.
    pub(crate) fn record_answer(
        mut self,
        checks: &Checks<'_>,
        answer: &Answer,
        verdicts: &mut [Verdict],
    ) -> Result<(), StoreError> {
        let table = &self.client.table;
        let now = self.client.now();
        let mut refused = SmallVec::<[_; 2]>::new();
        let mut replies = answer.lease_answers().iter();
        while let (Some(reply), Some(sent)) = (replies.next(), self.requests.first()) {
            let (Ok(reply), Some(lease)) = (reply, checks.list()[sent.check].band.lease()) else {
                // This one and those behind it have no answer.
                break;
            };
            let reply = reply.grant_reply(lease)?;
            table.add_grant(lease, &sent.pending, &reply, now);
            if reply.grant.units == 0 {
                refused.push(sent.pending.key);
            }
            self.requests.remove(0);
        }
        table.record_decision(checks, &refused, verdicts, now);
        Ok(())
    }
}

impl Drop for SentLeaseRequests<'_> {
    fn drop(&mut self) {
        for sent in &self.requests {
            self.client.table.record_no_answer(sent.pending.key);
        }
    }
}
