//! The units of one band that are on lease here.
//!
//! Everything is a function of the time, in microseconds of this process's lease clock.
//!
//! # What a death costs
//!
//! An instance that dies, stops or is cut off keeps what it holds: it may have spent it. So it
//! holds little. An ask wants at most as many units as were used here within the length of a
//! lease, twice over, less those that stay here and those that may be out because an earlier
//! ask got no answer; but one unit, if none is. Hence all units that were granted and are not
//! known to be spent are at most that many.

use fluxgate_core::internals::BandLease;
use fluxgate_core::internals::algorithm::{Ask, Grant, Report};
use fluxgate_core::store::{Micros, Retry, Verdict};
use fluxgate_core::{Limit, Timestamp};
use smallvec::SmallVec;

use super::hot_keys::HOT;
use super::recent_use::RecentUse;

/// The most grants of one band. Usually the last is nearly spent when the next arrives.
const MAX_GRANTS: usize = 4;
/// A lease is idle after this part of its life.
const IDLE_PART: u64 = 4;
/// A lease is about to end, and renewed, when this part of its life is left.
const OLD_PART: u64 = 5;
/// It is time to ask for more when this part of the units is left.
const LOW_PART: u32 = 8;
/// After a refusal without a grant, a band refuses by itself for this part of a lease.
const REFUSAL_PART: u64 = 50;
/// After a request was denied, a band is at its limit for this part of a lease.
const AT_LIMIT_PART: u64 = 2;

/// The leases of one band.
#[derive(Clone, Debug)]
pub(crate) struct KeptLease {
    grants: SmallVec<[Held; 2]>,
    /// Whether an ask is on its way.
    is_asking: bool,
    /// Whether the keeper is about to ask, unless a request does so first.
    is_queued: bool,
    /// The units that the ask on its way wants and returns, which are lost if it is.
    in_flight: u32,
    /// The units of asks without an answer, which may be out, and until when.
    lost: Option<(u32, u64)>,
    /// When the last ask was sent, and the units used since.
    asked_at: u64,
    used_since: u64,
    recent: RecentUse,
    used_at: u64,
    /// As many units as this are too few to wait any longer with the next ask.
    low: u32,
    shared: Option<SharedRest>,
    refusal: Option<Refusal>,
    /// When a request was denied last, and the number of refunds and resets before it.
    denied_at: Option<(u64, u64)>,
}

/// A grant that can be spent.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// When it ends by the store's clock, which identifies it.
    ends: u64,
    /// Until when it can be spent here.
    until: u64,
    /// Whether a later grant would last longer, because it does not end with the window.
    is_renewable: bool,
    left: u32,
    /// Units spent and not reported yet.
    spent: u32,
}

/// What was left of the shared limit when the store answered last.
#[derive(Clone, Copy, Debug)]
struct SharedRest {
    remaining: u32,
    reset_after: Micros,
    /// The store's time, and ours.
    at: Timestamp,
    known_at: u64,
}

impl SharedRest {
    fn new(verdict: &Verdict, now: u64) -> Self {
        Self {
            remaining: verdict.remaining,
            reset_after: verdict.reset_after,
            at: verdict.at,
            known_at: now,
        }
    }
}

/// A denial by the store that granted nothing, or a short grant soon after one.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    cost: u64,
    /// How long it holds, and until when.
    span: u64,
    until: u64,
    /// Whether it begins only when the units here are spent. Then it is forgotten at `until`.
    is_pending: bool,
    /// When the store would allow the request.
    retry_at: u64,
    /// The number of refunds and resets before it.
    generation: u64,
}

impl KeptLease {
    /// Creates an empty one, of a key that has become hot and is about to ask.
    pub(crate) fn new(lease: &BandLease, now: u64) -> Self {
        Self {
            grants: SmallVec::new(),
            is_asking: false,
            is_queued: false,
            in_flight: 0,
            lost: None,
            asked_at: now,
            used_since: 0,
            // The requests before the one that is about to ask cost a unit or more.
            recent: RecentUse::new(lease.span().get(), HOT - 1, now),
            used_at: now,
            low: 0,
            shared: None,
            refusal: None,
            denied_at: None,
        }
    }

    /// Returns the units that can be spent. Adds those that have ended to `expired`.
    pub(crate) fn available(&mut self, now: u64, expired: &mut u64) -> u32 {
        self.grants.retain(|held| {
            let is_live = now < held.until;
            *expired += if is_live { 0 } else { held.left.into() };
            is_live
        });
        self.on_lease()
    }

    /// Returns the units that are held, whether or not they have ended.
    pub(crate) fn on_lease(&self) -> u32 {
        self.grants.iter().map(|held| held.left).sum()
    }

    /// Spends units that are [available](Self::available), those that end first at first.
    /// Returns whether it is now time for the keeper to ask for more.
    pub(crate) fn spend(&mut self, cost: u32, now: u64) -> bool {
        self.used(cost.into(), now);
        let mut rest = cost;
        for held in &mut self.grants {
            let units = held.left.min(rest);
            held.left -= units;
            held.spent += units;
            rest -= units;
        }
        debug_assert_eq!(rest, 0);
        let is_refusing = self.refusal.is_some_and(|refusal| now < refusal.until);
        let is_low = !self.is_busy() && !is_refusing && self.on_lease() <= self.low;
        is_low && !std::mem::replace(&mut self.is_queued, true)
    }

    /// Refuses a request of this cost without asking the store, if one was refused shortly
    /// before. Returns after which time it may be tried again. The first request after that
    /// asks, and others are refused until the answer comes, but at most as long once more.
    pub(crate) fn refusal(&mut self, cost: u64, generation: u64, now: u64) -> Option<Retry> {
        if let Some(refusal) = &mut self.refusal
            && refusal.is_pending
            && now < refusal.until
        {
            refusal.is_pending = false;
            refusal.until = now + refusal.span;
        }
        let refusal = self.refusal.filter(|refusal| {
            let is_asking = self.is_asking && now < self.asked_at + refusal.span;
            (now < refusal.until || is_asking)
                && cost >= refusal.cost
                && generation == refusal.generation
        })?;
        self.denied_at = Some((now, generation));
        // Not at once: it would pass then.
        let retry_at = refusal.retry_at.max(refusal.until).max(now + 1);
        Some(Retry::After(Micros::new(retry_at - now)))
    }

    /// Notes that the store denied a request.
    pub(crate) fn denied(&mut self, generation: u64, now: u64) {
        self.denied_at = Some((now, generation));
    }

    /// Returns whether requests were denied shortly before.
    pub(crate) fn is_at_limit(&self, lease: &BandLease, generation: u64, now: u64) -> bool {
        let part = lease.span().get() / AT_LIMIT_PART;
        self.denied_at
            .is_some_and(|(at, known)| now < at + part && generation == known)
    }

    /// Notes that the store denied a request and granted nothing.
    pub(crate) fn refuse(
        &mut self,
        lease: &BandLease,
        cost: u64,
        retry: Retry,
        generation: u64,
        now: u64,
    ) {
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
            until: now + span,
            is_pending: false,
            retry_at: now.saturating_add(wait),
            generation,
        });
        self.denied(generation, now);
    }

    /// Refuses for a while once the units here are spent. Of a band at its limit, an instance
    /// would otherwise get units in ever smaller grants, with many calls: each would bring
    /// what has come back while the one before was spent. What comes back during the pause
    /// makes up for what demand exceeds supply by, so the grants grow until both are in balance:
    /// the nearer to the limit, the larger they are.
    pub(crate) fn pause(&mut self, lease: &BandLease, rest: &Verdict, generation: u64, now: u64) {
        let denied_at = self.denied_at;
        self.refuse(lease, 1, Retry::After(rest.reset_after), generation, now);
        self.denied_at = denied_at;
        let rate = lease.shared().rate();
        let owed_at_one = rate.fill().whole - rate.time_of(1).whole;
        let wait = if rest.remaining > 0 {
            0
        } else if lease.shared().algorithm().is_bucket() {
            rest.reset_after.get().saturating_sub(owed_at_one)
        } else {
            rest.reset_after.get()
        };
        if let Some(refusal) = &mut self.refusal {
            refusal.retry_at = now + wait;
            refusal.is_pending = true;
            refusal.until = now + lease.span().get() / AT_LIMIT_PART;
        }
    }

    /// Returns whether an ask is on its way.
    pub(crate) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Returns whether the keeper is still to ask for more, and lets it be.
    pub(crate) fn take_queued(&mut self) -> bool {
        std::mem::take(&mut self.is_queued) && !self.is_busy()
    }

    /// Returns whether an ask is on its way, or there is no room for its answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_asking || self.grants.len() >= MAX_GRANTS
    }

    /// Asks for units, and reports what was spent. A request of this `cost`, or 0, is sent with
    /// it. Returns `None` if as many units as are wanted are here or may be out.
    pub(crate) fn ask(&mut self, lease: &BandLease, cost: u64, now: u64) -> Option<Ask> {
        self.used_at = now;
        let want = self.want(lease, self.on_lease(), cost, now);
        if want == 0 {
            self.is_queued = false;
            // Not at once again.
            self.low = self.on_lease() / 2;
            return None;
        }
        Some(self.report(want, |_| false, now))
    }

    /// Returns how many units to ask for while `held` ones stay here: what three quarters of a
    /// lease need at the current rate, and no more than [a death may cost](self).
    fn want(&mut self, lease: &BandLease, held: u32, cost: u64, now: u64) -> u32 {
        let span = lease.span().get();
        let recent = self.recent.units(now).saturating_add(cost);
        // Threads may pass each other between the clock and the lock.
        let elapsed = now.saturating_sub(self.asked_at).max(1000);
        let used = self.used_since.saturating_add(cost);
        let current = used.saturating_mul(span) / elapsed;
        let needed = recent.max(current).saturating_mul(3) / 4;
        let life = self
            .window_left(lease, now)
            .map_or(span, |left| left.min(span));
        let needed = u128::from(needed) * u128::from(life) / u128::from(span);
        let lost = self.lost.filter(|(_, until)| now < *until);
        let out = u64::from(held) + lost.map_or(0, |(units, _)| units.into());
        let most = recent.saturating_mul(2).max(1).saturating_sub(out);
        // At most a capacity.
        needed.max(1).min(most.min(lease.most()).into()) as u32
    }

    /// Returns how long the window of the last answer goes on; `None` if it has ended, or if the
    /// limit is a bucket.
    fn window_left(&self, lease: &BandLease, now: u64) -> Option<u64> {
        let is_bucket = lease.shared().algorithm().is_bucket();
        let shared = self.shared.as_ref().filter(|_| !is_bucket)?;
        let elapsed = now.saturating_sub(shared.known_at);
        let left = shared.reset_after.get().saturating_sub(elapsed);
        (left > 0).then_some(left)
    }

    /// Requests nothing and returns all units.
    pub(crate) fn return_all(&mut self, now: u64) -> Ask {
        self.report(0, |_| true, now)
    }

    /// Returns the ask that is due without a request, if there is one: units of a lease
    /// that is idle go back, and those of a lease about to end are renewed.
    pub(crate) fn due(&mut self, lease: &BandLease, now: u64) -> Option<Ask> {
        if self.is_busy() || self.grants.is_empty() {
            return None;
        }
        if now >= self.used_at + lease.span().get() / IDLE_PART {
            return Some(self.return_all(now));
        }
        let part = lease.span().get() / OLD_PART;
        let is_old = |held: &Held| held.is_renewable && held.left > 0 && now + part >= held.until;
        if !self.grants.iter().any(is_old) {
            return None;
        }
        let kept = self.grants.iter().filter(|held| !is_old(held));
        let kept = kept.map(|held| held.left).sum();
        let want = self.want(lease, kept, 0, now);
        Some(self.report(want, is_old, now))
    }

    /// Returns whether nothing is known that is worth keeping.
    pub(crate) fn is_forgettable(&self, lease: &BandLease, now: u64) -> bool {
        !self.is_asking && self.grants.is_empty() && now >= self.used_at + 2 * lease.span().get()
    }

    /// Reports what was spent and what of some grants goes back, each unit once: if the
    /// ask is lost, the units stay out until the grant ends.
    fn report(&mut self, want: u32, goes_back: impl Fn(&Held) -> bool, now: u64) -> Ask {
        let mut reports = SmallVec::new();
        self.in_flight = want;
        for held in &mut self.grants {
            let returned = if goes_back(held) { held.left } else { 0 };
            if held.spent > 0 || returned > 0 {
                reports.push(Report {
                    ends: held.ends,
                    spent: held.spent,
                    returned,
                });
            }
            self.in_flight += returned;
            held.left -= returned;
            held.spent = 0;
        }
        self.grants.retain(|held| held.left > 0);
        self.is_asking = true;
        self.is_queued = false;
        self.asked_at = now;
        self.used_since = 0;
        Ask { want, reports }
    }

    /// Adds what the store granted in answer to an ask of this instant.
    pub(crate) fn granted(
        &mut self,
        lease: &BandLease,
        asked_at: u64,
        grant: &Grant,
        rest: &Verdict,
        now: u64,
    ) {
        self.is_asking = false;
        match &mut self.shared {
            Some(shared) if shared.at > rest.at => {}
            // Of two answers of one instant, the one with less left is the later.
            Some(shared) if shared.at == rest.at => {
                shared.remaining = shared.remaining.min(rest.remaining);
            }
            shared => *shared = Some(SharedRest::new(rest, now)),
        }
        self.refusal = None;
        if grant.units > 0 {
            self.grants.push(Held {
                ends: grant.ends,
                until: asked_at + grant.usable_for(lease).get(),
                is_renewable: grant.window_left.is_none_or(|left| left > lease.span()),
                left: grant.units,
                spent: 0,
            });
        }
        self.low = self.on_lease() / LOW_PART;
    }

    /// Notes that an ask was not answered.
    pub(crate) fn unanswered(&mut self) {
        self.is_asking = false;
        // Not at once again: the next request without units asks.
        self.low = 0;
        let span = self.recent.span();
        // The store may have answered any time until now, and rounds the end up. Units that
        // were lost before stay so as long.
        let until = self.asked_at + 2 * span;
        let before = self.lost.filter(|(_, until)| self.asked_at < *until);
        let before = before.map_or(0, |(units, _)| units);
        self.lost = Some((before.saturating_add(self.in_flight), until));
    }

    /// Notes that units were used here.
    pub(crate) fn used(&mut self, units: u64, now: u64) {
        self.used_at = now;
        self.used_since = self.used_since.saturating_add(units);
        self.recent.add(units, now);
    }

    /// Sets what is left to what the store said last, and what is on lease here. Answers may
    /// arrive in another order than the store gave them.
    pub(crate) fn add_rest(&mut self, verdict: &mut Verdict, now: u64) {
        match &self.shared {
            Some(shared) if shared.at > verdict.at => verdict.remaining = shared.remaining,
            Some(shared) if shared.at == verdict.at => {
                verdict.remaining = verdict.remaining.min(shared.remaining);
            }
            _ => self.shared = Some(SharedRest::new(verdict, now)),
        }
        verdict.remaining = verdict.remaining.saturating_add(self.on_lease());
    }

    /// Returns the verdict on a request that is decided here; `retry` says that it is denied.
    pub(crate) fn verdict(&self, limit: &Limit, retry: Option<Retry>, now: u64) -> Verdict {
        let elapsed = |known_at: u64| now.saturating_sub(known_at);
        let shared = self.shared.as_ref();
        let rest = shared.map_or(0, |shared| shared.remaining);
        let capacity = limit.capacity() as u32;
        let remaining = rest.saturating_add(self.on_lease()).min(capacity);
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

#[cfg(test)]
mod tests;
