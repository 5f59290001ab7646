//! Leases against Redis: decides requests by units on lease, and requests leases together with
//! decisions of the server.
//!
//! The server decides a request that leases do not cover, and the same call requests units of
//! bands that are used often. A task, the keeper (`lease_keeper.rs`), requests more before they
//! are spent, and returns unused ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fluxgate_core::StoreError;
use fluxgate_core::store::{Checks, Verdict, Verdicts};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::codec::{Answer, Request};
use crate::keys::KeyNaming;
use crate::lease::{CheckRequest, LeaseTable, is_leasable};

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
            request.lease_requests.push(Request::lease(
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
        let mut replies = answer.lease_answers.iter();
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

/// Later than the end of any lease, and far from an overflow.
const NEVER: u64 = 1 << 62;

/// The clock that times leases.
///
/// The server counts the life of a lease while this machine sleeps, so this clock must run then,
/// too. On Linux it is `CLOCK_BOOTTIME`; the standard library reads `CLOCK_MONOTONIC`, which
/// stops. On systems without such a clock, no units are leased.
#[derive(Clone, Copy, Debug)]
struct LeaseClock {
    /// When it was started; `None` if the system has no such clock.
    began: Option<u64>,
}

impl LeaseClock {
    pub(crate) fn start() -> Self {
        Self {
            began: boot_micros(),
        }
    }

    /// Returns whether the system has such a clock.
    pub(crate) fn is_available(&self) -> bool {
        self.began.is_some()
    }

    /// Returns the microseconds since it was started; without such a clock, a time when all
    /// leases have ended.
    pub(crate) fn now(&self) -> u64 {
        match (self.began, boot_micros()) {
            (Some(began), Some(now)) => now.saturating_sub(began),
            _ => NEVER,
        }
    }
}

/// Returns the microseconds since the machine was started.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_micros() -> Option<u64> {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = fluxgate_core::simulation::current() {
        return Some(simulated.boot);
    }
    use rustix::time::{DynamicClockId, clock_gettime_dynamic};

    let now = clock_gettime_dynamic(DynamicClockId::Boottime).ok()?;
    let seconds = u64::try_from(now.tv_sec).ok()?;
    let nanos = u64::try_from(now.tv_nsec).ok()?;
    Some(seconds * 1_000_000 + nanos / 1_000)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_micros() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_leases_have_ended_without_a_clock() {
        let clock = LeaseClock { began: None };
        assert!(!clock.is_available());
        assert_eq!(clock.now(), NEVER);
    }

    /// The first number of `/proc/uptime` includes the time in which the machine slept.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_counts_from_the_start_of_the_machine() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let (seconds, hundredths) = text.split_once(' ').unwrap().0.split_once('.').unwrap();
            let [seconds, hundredths] = [seconds, hundredths].map(|text| text.parse::<u64>());
            seconds.unwrap() * 1_000_000 + hundredths.unwrap() * 10_000
        };
        let before = uptime();
        let shown = boot_micros().unwrap();
        let after = uptime();
        assert!((before..=after + 10_000).contains(&shown), "{shown}");
    }
}
