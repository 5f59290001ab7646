//! The units of one band that a process holds on lease.
//!
//! # What a crash costs
//!
//! Units of a process that crashes, stops or is cut off stay charged, because it may have spent
//! them. So it holds few: a request wants at most twice the units used within the length of a
//! lease (at least one), less the units held and those that a lost reply may have granted. Hence
//! the units that were granted and are not known to be spent are at most that many.

use fluxgate_core::algorithm::{Grant, GrantReport, LeaseRequest};
use fluxgate_core::lease::BandLease;
use fluxgate_core::store::{Micros, Retry, Verdict};
use fluxgate_core::{Limit, Timestamp};
use smallvec::SmallVec;

use super::hot_keys::HOT;

/// The most grants of one band. Usually the last is nearly spent when the next arrives.
const MAX_GRANTS: usize = 4;
/// A lease that is not used for this part of its span is idle.
const IDLE_PART: u64 = 4;
/// A grant is renewed when this part of the span is left of it.
const OLD_PART: u64 = 5;
/// More units are requested when this part of the units is left.
const LOW_PART: u32 = 8;
/// After a denial without a grant, requests are refused here for this part of the span.
const REFUSAL_PART: u64 = 50;
/// A band is at its limit for this part of the span after a denial.
const AT_LIMIT_PART: u64 = 2;

/// A time, and how many refunds and resets came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds of the process's lease clock.
    pub at: u64,
    /// The number of refunds and resets. A refusal from before one no longer holds.
    pub generation: u64,
}

/// The server's reply to a lease request.
#[derive(Clone, Copy, Debug)]
pub struct GrantReply {
    /// The units granted.
    pub grant: Grant,
    /// What the shared limit has left after the grant.
    pub balance: Verdict,
}

/// The units of one band that a process holds on lease.
#[derive(Clone, Debug)]
pub struct LeaseHolder {
    grants: SmallVec<[ActiveGrant; 2]>,
    /// Whether a lease request is on its way.
    is_requesting: bool,
    /// Whether the keeper is about to request units, unless a decision does so first.
    is_queued: bool,
    /// The units that the request on its way wants and returns, which are lost if it is.
    in_flight: u32,
    lost: Option<LostUnits>,
    /// When the last request was sent, and the units used since.
    requested_at: u64,
    used_since: u64,
    recent: RecentUse,
    used_at: u64,
    /// At this many units or fewer, more are requested.
    low: u32,
    shared: Option<SharedBalance>,
    refusal: Option<Refusal>,
    /// When a request was last denied.
    denied: Option<Moment>,
}

/// A grant that can be spent.
#[derive(Clone, Copy, Debug)]
struct ActiveGrant {
    /// When it ends by the server's clock, which identifies it.
    ends: u64,
    /// Until when it can be spent here.
    until: u64,
    /// Whether a later grant would last longer, because this one does not end with its window.
    is_renewable: bool,
    left: u32,
    /// Units spent and not reported yet.
    spent: u32,
}

/// The units of requests without an answer, which may have been granted.
#[derive(Clone, Copy, Debug)]
struct LostUnits {
    units: u32,
    until: u64,
}

/// What the shared limit had left at the last answer of the server.
#[derive(Clone, Copy, Debug)]
struct SharedBalance {
    remaining: u32,
    reset_after: Micros,
    /// The server's time, and that of this process.
    at: Timestamp,
    known_at: u64,
}

impl SharedBalance {
    fn new(verdict: &Verdict, now: u64) -> Self {
        Self {
            remaining: verdict.remaining,
            reset_after: verdict.reset_after,
            at: verdict.at,
            known_at: now,
        }
    }
}

/// A denial by the server that granted nothing, or a short grant soon after a denial.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    cost: u64,
    /// How long it holds, and until when.
    span: u64,
    until: u64,
    /// Whether it begins only when the units here are spent. If they are not spent by `until`,
    /// it is forgotten.
    is_pending: bool,
    /// When the server would allow the request.
    retry_at: u64,
    generation: u64,
}

impl LeaseHolder {
    /// Creates a holder without units, for a key that has become hot.
    pub fn new(lease: &BandLease, now: u64) -> Self {
        Self {
            grants: SmallVec::new(),
            is_requesting: false,
            is_queued: false,
            in_flight: 0,
            lost: None,
            requested_at: now,
            used_since: 0,
            // Each request that made the key hot cost at least one unit. The last of them is
            // counted by the caller.
            recent: RecentUse::new(lease.span().get(), HOT - 1, now),
            used_at: now,
            low: 0,
            shared: None,
            refusal: None,
            denied: None,
        }
    }

    /// Drops grants that have ended, and returns how many units they had left.
    pub fn expire(&mut self, now: u64) -> u64 {
        let mut expired = 0;
        self.grants.retain(|grant| {
            let is_live = now < grant.until;
            expired += if is_live { 0 } else { u64::from(grant.left) };
            is_live
        });
        expired
    }

    /// Returns the units on lease, including those that have ended since
    /// [`expire`](Self::expire).
    pub fn units(&self) -> u32 {
        self.grants.iter().map(|grant| grant.left).sum()
    }

    /// Spends [units](Self::units) of the grants that end first. Returns whether the keeper
    /// should now request more.
    pub fn spend(&mut self, cost: u32, now: u64) -> bool {
        self.record_use(cost.into(), now);
        let mut unpaid = cost;
        for grant in &mut self.grants {
            let units = grant.left.min(unpaid);
            grant.left -= units;
            grant.spent += units;
            unpaid -= units;
        }
        debug_assert_eq!(unpaid, 0);
        let is_refusing = self.refusal.is_some_and(|refusal| now < refusal.until);
        let is_low = !self.is_busy() && !is_refusing && self.units() <= self.low;
        is_low && !std::mem::replace(&mut self.is_queued, true)
    }

    /// Refuses a request if the server refused one shortly before. Returns when to retry, or
    /// `None` if the server must decide. The first request after a refusal ends goes to the
    /// server. Others are refused until its answer comes, for at most the same span again.
    pub fn refuse_again(&mut self, cost: u64, now: Moment) -> Option<Retry> {
        if let Some(refusal) = &mut self.refusal
            && refusal.is_pending
            && now.at < refusal.until
        {
            refusal.is_pending = false;
            refusal.until = now.at + refusal.span;
        }
        let refusal = self.refusal.filter(|refusal| {
            let is_requesting = self.is_requesting && now.at < self.requested_at + refusal.span;
            (now.at < refusal.until || is_requesting)
                && cost >= refusal.cost
                && now.generation == refusal.generation
        })?;
        self.record_denial(now);
        // At least one microsecond: zero would mean that the request passes.
        let retry_at = refusal.retry_at.max(refusal.until).max(now.at + 1);
        Some(Retry::After(Micros::new(retry_at - now.at)))
    }

    /// Records that the server denied a request.
    pub fn record_denial(&mut self, now: Moment) {
        self.denied = Some(now);
    }

    /// Returns whether a request was denied shortly before.
    pub(super) fn is_at_limit(&self, lease: &BandLease, now: Moment) -> bool {
        let part = lease.span().get() / AT_LIMIT_PART;
        self.denied
            .is_some_and(|denied| now.at < denied.at + part && now.generation == denied.generation)
    }

    /// Records that the server denied a request and granted nothing.
    pub fn record_refusal(&mut self, lease: &BandLease, cost: u64, retry: Retry, now: Moment) {
        self.set_refusal(lease, cost, retry, now);
        self.record_denial(now);
    }

    fn set_refusal(&mut self, lease: &BandLease, cost: u64, retry: Retry, now: Moment) {
        let wait = retry.after().map_or(u64::MAX / 2, Micros::get);
        let limit = lease.shared();
        // A bucket refills by at most a quarter in this time.
        let longest = if limit.algorithm().is_bucket() {
            limit.rate().fill().whole / 4
        } else {
            wait
        };
        let span = (lease.span().get() / REFUSAL_PART).min(longest);
        self.refusal = Some(Refusal {
            cost,
            span,
            until: now.at + span,
            is_pending: false,
            retry_at: now.at.saturating_add(wait),
            generation: now.generation,
        });
    }

    /// Refuses requests for a while once the units here are spent.
    ///
    /// Without this pause, a band at its limit would get ever smaller grants in ever more calls:
    /// each grant would have what refilled while the one before it was spent. What refills
    /// during the pause makes up for it, so grants grow until demand and supply balance.
    pub(super) fn refuse_when_spent(&mut self, lease: &BandLease, balance: &Verdict, now: Moment) {
        self.set_refusal(lease, 1, Retry::After(balance.reset_after), now);
        let rate = lease.shared().rate();
        let owed_at_one = rate.fill().whole - rate.time_of(1).whole;
        let wait = if balance.remaining > 0 {
            0
        } else if lease.shared().algorithm().is_bucket() {
            balance.reset_after.get().saturating_sub(owed_at_one)
        } else {
            balance.reset_after.get()
        };
        if let Some(refusal) = &mut self.refusal {
            refusal.retry_at = now.at + wait;
            refusal.is_pending = true;
            refusal.until = now.at + lease.span().get() / AT_LIMIT_PART;
        }
    }

    /// Returns the grants: when each ends by the server's clock, until when it can be spent here,
    /// the units left, and those spent and not reported.
    #[cfg(feature = "lease-trace")]
    pub(super) fn grants(&self) -> impl Iterator<Item = (u64, u64, u32, u32)> + '_ {
        let grants = self.grants.iter();
        grants.map(|grant| (grant.ends, grant.until, grant.left, grant.spent))
    }

    /// Returns whether a lease request is on its way.
    pub fn is_requesting(&self) -> bool {
        self.is_requesting
    }

    /// Clears the queued flag; returns whether a request of the keeper is still due.
    pub fn take_queued(&mut self) -> bool {
        std::mem::take(&mut self.is_queued) && !self.is_busy()
    }

    /// Returns whether a request is on its way, or there is no room for another grant.
    pub fn is_busy(&self) -> bool {
        self.is_requesting || self.grants.len() >= MAX_GRANTS
    }

    /// Requests units and reports what was spent. `cost` is that of the request that the
    /// server decides in the same call, or 0. Returns `None` if the process has enough units,
    /// or may have been granted them.
    pub fn request(&mut self, lease: &BandLease, cost: u64, now: u64) -> Option<LeaseRequest> {
        self.used_at = now;
        let want = self.want(lease, self.units(), cost, now);
        if want == 0 {
            self.is_queued = false;
            // Wait until half of the units are spent.
            self.low = self.units() / 2;
            return None;
        }
        Some(self.report(want, |_| false, now))
    }

    /// Returns how many units to request if `held` of them stay here: enough for three quarters
    /// of a lease at the current rate, and no more than [a crash may cost](self).
    fn want(&mut self, lease: &BandLease, held: u32, cost: u64, now: u64) -> u32 {
        let span = lease.span().get();
        let recent = self.recent.units(now).saturating_add(cost);
        // A thread may read the clock before another one and get the lock after it.
        let elapsed = now.saturating_sub(self.requested_at).max(1000);
        let used = self.used_since.saturating_add(cost);
        let current = used.saturating_mul(span) / elapsed;
        let per_span = recent.max(current).saturating_mul(3) / 4;
        let life = self
            .window_left(lease, now)
            .map_or(span, |left| left.min(span));
        let needed = u128::from(per_span) * u128::from(life) / u128::from(span);
        let lost = self.lost.filter(|lost| now < lost.until);
        let out = u64::from(held) + lost.map_or(0, |lost| lost.units.into());
        let most = recent.saturating_mul(2).max(1).saturating_sub(out);
        // At most a capacity.
        needed.max(1).min(most.min(lease.most()).into()) as u32
    }

    /// Returns what is left of the window of the last answer; `None` if it has ended, or if the
    /// limit is a bucket.
    fn window_left(&self, lease: &BandLease, now: u64) -> Option<u64> {
        let is_bucket = lease.shared().algorithm().is_bucket();
        let shared = self.shared.as_ref().filter(|_| !is_bucket)?;
        let elapsed = now.saturating_sub(shared.known_at);
        let left = shared.reset_after.get().saturating_sub(elapsed);
        (left > 0).then_some(left)
    }

    /// Returns all units and requests none.
    pub fn return_all(&mut self, now: u64) -> LeaseRequest {
        self.report(0, |_| true, now)
    }

    /// Returns the request that is due without a decision, if any: it returns the units of an
    /// idle lease, or renews grants that are about to end.
    pub fn due_request(&mut self, lease: &BandLease, now: u64) -> Option<LeaseRequest> {
        if self.is_busy() || self.grants.is_empty() {
            return None;
        }
        if now >= self.used_at + lease.span().get() / IDLE_PART {
            return Some(self.return_all(now));
        }
        let part = lease.span().get() / OLD_PART;
        let is_old =
            |grant: &ActiveGrant| grant.is_renewable && grant.left > 0 && now + part >= grant.until;
        if !self.grants.iter().any(is_old) {
            return None;
        }
        let young = self.grants.iter().filter(|grant| !is_old(grant));
        let held = young.map(|grant| grant.left).sum();
        let want = self.want(lease, held, 0, now);
        Some(self.report(want, is_old, now))
    }

    /// Returns whether it holds nothing worth keeping.
    pub(super) fn is_forgettable(&self, lease: &BandLease, now: u64) -> bool {
        !self.is_requesting
            && self.grants.is_empty()
            && now >= self.used_at + 2 * lease.span().get()
    }

    /// Reports each unit once: as spent, or as returned if `is_returned` says so of its grant.
    /// If the request is lost, the units stay out until their grant ends.
    fn report(
        &mut self,
        want: u32,
        is_returned: impl Fn(&ActiveGrant) -> bool,
        now: u64,
    ) -> LeaseRequest {
        let mut reports = SmallVec::<[GrantReport; 2]>::new();
        self.in_flight = want;
        for grant in &mut self.grants {
            let returned = if is_returned(grant) { grant.left } else { 0 };
            if grant.spent > 0 || returned > 0 {
                reports.push(GrantReport {
                    ends: grant.ends,
                    spent: grant.spent,
                    returned,
                });
            }
            self.in_flight += returned;
            grant.left -= returned;
            grant.spent = 0;
        }
        self.grants.retain(|grant| grant.left > 0);
        self.is_requesting = true;
        self.is_queued = false;
        self.requested_at = now;
        self.used_since = 0;
        LeaseRequest::new(want, reports)
    }

    /// Adds what the server granted in reply to a request sent at `sent_at`.
    pub fn add_grant(&mut self, lease: &BandLease, sent_at: u64, reply: &GrantReply, now: u64) {
        let GrantReply { grant, balance } = reply;
        self.is_requesting = false;
        match &mut self.shared {
            Some(shared) if shared.at > balance.at => {}
            // Of two answers of one instant, the one with less left is the later.
            Some(shared) if shared.at == balance.at => {
                shared.remaining = shared.remaining.min(balance.remaining);
            }
            shared => *shared = Some(SharedBalance::new(balance, now)),
        }
        self.refusal = None;
        if grant.units > 0 {
            self.grants.push(ActiveGrant {
                ends: grant.ends,
                until: sent_at + grant.usable_for(lease).get(),
                is_renewable: grant.window_left.is_none_or(|left| left > lease.span()),
                left: grant.units,
                spent: 0,
            });
        }
        self.low = self.units() / LOW_PART;
    }

    /// Records that the request on its way got no answer.
    pub fn record_no_answer(&mut self) {
        self.is_requesting = false;
        // The keeper does not retry: the next decision without units does.
        self.low = 0;
        // The server may have answered at any time until now, and rounds the end up. Units that
        // were lost before count for as long.
        let before = self
            .lost
            .filter(|lost| self.requested_at < lost.until)
            .map_or(0, |lost| lost.units);
        self.lost = Some(LostUnits {
            units: before.saturating_add(self.in_flight),
            until: self.requested_at + 2 * self.recent.span(),
        });
    }

    /// Records that units were used here.
    pub fn record_use(&mut self, units: u64, now: u64) {
        self.used_at = now;
        self.used_since = self.used_since.saturating_add(units);
        self.recent.add(units, now);
    }

    /// Adds the units on lease to a verdict of the server. If a later answer of the server came
    /// first, takes the rest from that one.
    pub(super) fn add_units(&mut self, verdict: &mut Verdict, now: u64) {
        match &self.shared {
            Some(shared) if shared.at > verdict.at => verdict.remaining = shared.remaining,
            Some(shared) if shared.at == verdict.at => {
                verdict.remaining = verdict.remaining.min(shared.remaining);
            }
            _ => self.shared = Some(SharedBalance::new(verdict, now)),
        }
        verdict.remaining = verdict.remaining.saturating_add(self.units());
    }

    /// Returns the verdict on a request that is decided here; `retry` if it is denied.
    pub(super) fn verdict(&self, limit: &Limit, retry: Option<Retry>, now: u64) -> Verdict {
        let elapsed = |known_at: u64| now.saturating_sub(known_at);
        let shared = self.shared.as_ref();
        let capacity = limit.capacity() as u32;
        let remaining = shared
            .map_or(0, |shared| shared.remaining)
            .saturating_add(self.units())
            .min(capacity);
        let at = shared.map_or(0, |shared| shared.at.micros() + elapsed(shared.known_at));
        let reset_after = if limit.algorithm().is_bucket() {
            let missing = limit.rate().time_of((capacity - remaining).into());
            Micros::new(missing.ceil())
        } else {
            shared.map_or(Micros::ZERO, |shared| {
                let left = shared.reset_after.get();
                Micros::new(left.saturating_sub(elapsed(shared.known_at)))
            })
        };
        Verdict {
            at: Timestamp::saturating_from_micros(at),
            remaining,
            part: 0,
            retry_after: retry.unwrap_or(Retry::NOW),
            reset_after,
            delay: Micros::ZERO,
        }
    }
}

/// The units of one band that were used recently: a sliding window as long as a lease, of two
/// counts. The previous count is weighted by how much of it the window still covers.
#[derive(Clone, Copy, Debug)]
struct RecentUse {
    span: u64,
    /// When the current count began.
    began: u64,
    current: u64,
    previous: u64,
}

impl RecentUse {
    /// Creates a window of this span, with units that were used until now.
    fn new(span: u64, units: u64, now: u64) -> Self {
        Self {
            span,
            began: now,
            current: units,
            previous: 0,
        }
    }

    /// Returns the span of a lease.
    fn span(&self) -> u64 {
        self.span
    }

    /// Adds units that are used now.
    fn add(&mut self, units: u64, now: u64) {
        self.settle(now);
        self.current = self.current.saturating_add(units);
    }

    /// Returns the units that were used within the last span.
    fn units(&mut self, now: u64) -> u64 {
        self.settle(now);
        // A thread may read the clock before another one and get the lock after it.
        let left = self.span - now.saturating_sub(self.began);
        let previous = u128::from(self.previous) * u128::from(left) / u128::from(self.span);
        // At most `previous`.
        self.current.saturating_add(previous as u64)
    }

    fn settle(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.began);
        if elapsed < self.span {
            return;
        }
        let is_next = elapsed < 2 * self.span;
        self.previous = if is_next { self.current } else { 0 };
        self.current = 0;
        self.began = if is_next { self.began + self.span } else { now };
    }
}

#[cfg(test)]
mod tests;
