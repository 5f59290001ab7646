//! Decisions that make a request wait, and reservations that are cancelled.

use smallvec::SmallVec;

use super::charge::Charge;
use super::outcome::{Outcome, WaitRefusal, WaitStatus};
use super::{BandReservation, Decision};
use crate::context::RequestContext;
use crate::hold::HoldId;
use crate::time::{Micros, Retry, Timestamp};

impl Decision {
    /// Returns how long to wait before deciding a denied request again, if that may help:
    /// all bands that deny belong to rules that let requests wait at least that long. (A
    /// bucket of such a rule would have reserved.)
    pub fn worth_waiting(&self) -> Option<Micros> {
        let wait = self.retry_after.after()?;
        if self.allowed || self.violated.is_empty() {
            return None;
        }
        let mut most = self.violated().map(|violated| violated.rule.max_wait());
        most.all(|most| most.is_some_and(|most| wait <= most))
            .then_some(wait)
    }

    /// Returns how long a request that has to wait may wait: the least that the rules it
    /// waits for allow. `None` if they set no bound, as shaping rules.
    pub fn max_wait(&self) -> Option<Micros> {
        let delayed = self
            .delayed()
            .map(|reservation| reservation.band)
            .filter_map(|band| self.resolve(band));
        let denied = self.violated().filter(|_| !self.allowed);
        { denied.chain(delayed) }
            .filter_map(|it| it.rule.max_wait())
            .min()
    }

    /// Returns why the request was not allowed to wait, if that is why it is denied: every
    /// rule that denies it lets requests wait.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fluxgate_core::{Limiter, ManualClock, MemoryStore, Quota, RequestContext, Rule};
    /// use fluxgate_core::{RuleSet, WaitRefusal};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mails = Rule::new("mails")
    ///     .global()
    ///     .band(Quota::per_minute(1))
    ///     .wait_up_to(Duration::from_secs(90));
    /// let rules = RuleSet::builder("outgoing").rule(mails).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::with_clock(ManualClock::default()));
    /// let outgoing = limiter.rule_set("outgoing")?;
    /// let check = || outgoing.check_sync(&RequestContext::default());
    /// assert!(check().delay().is_zero());
    /// assert_eq!(check().delay(), Duration::from_secs(60));
    /// assert_eq!(check().wait_refusal(), Some(WaitRefusal::TooLong));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_refusal(&self) -> Option<WaitRefusal> {
        match self.wait {
            WaitStatus::None => self.refusal_by_verdicts(),
            WaitStatus::NotRequested => None,
            WaitStatus::Refused(refusal) => Some(refusal),
        }
    }

    /// Sets why a denied request was not allowed to wait.
    pub fn refuse_wait(mut self, refusal: WaitRefusal) -> Self {
        if !self.allowed {
            self.wait = WaitStatus::Refused(refusal);
        }
        self
    }

    /// Notes that the caller asked for a decision without a wait.
    pub(crate) fn set_wait_not_requested(&mut self) {
        self.wait = WaitStatus::NotRequested;
    }

    /// A bucket reserves if the wait is short enough, unless no more requests may wait. A
    /// window never does: its caller waits and asks again.
    fn refusal_by_verdicts(&self) -> Option<WaitRefusal> {
        let Retry::After(wait) = self.retry_after else {
            return None;
        };
        if self.allowed || self.violated.is_empty() {
            return None;
        }
        let mut shortest = None;
        for violated in self.violated() {
            let max = violated.rule.max_wait()?;
            shortest = Some(shortest.map_or(max, |least| max.min(least)));
        }
        let reported = self.resolve(self.reported?)?;
        let band = reported.band?;
        if wait > reported.rule.max_wait()? {
            Some(WaitRefusal::TooLong)
        } else if band.algorithm().is_bucket() {
            Some(WaitRefusal::TooMany)
        } else {
            // The caller of a window does not wait for it if another rule denies for longer.
            (wait > shortest?).then_some(WaitRefusal::TooLong)
        }
    }

    /// Returns the same decision after `waited` has passed.
    pub fn after(mut self, waited: Micros) -> Self {
        let at = self.at.micros().saturating_add(waited.get());
        self.at = Timestamp::saturating_from_micros(at);
        let left = self.reset_after.get().saturating_sub(waited.get());
        self.reset_after = Micros::new(left);
        for (_, _, reset_after) in &mut self.levels {
            *reset_after = Micros::new(reset_after.get().saturating_sub(waited.get()));
        }
        self
    }

    /// Converts the decision to wait into a denial by the bands with a delay, and reports
    /// the one with the longest. The charge must be cancelled.
    pub fn into_denied(mut self) -> Self {
        let delayed: SmallVec<[BandReservation; 2]> = self.delayed().copied().collect();
        // On a tie, take the first.
        let longest = delayed
            .iter()
            .rev()
            .max_by_key(|reservation| reservation.delay);
        let Some(&BandReservation {
            band,
            at,
            reset_after,
            ..
        }) = longest
        else {
            return self;
        };
        self.allowed = false;
        if self.outcome != Outcome::Fallback {
            self.outcome = Outcome::Denied;
        }
        self.retry_after = Retry::After(self.delay);
        self.delay = Micros::ZERO;
        self.reservations = Vec::new();
        self.reservation = None;
        self.reported = Some(band);
        self.remaining = Some(0);
        self.at = at;
        self.reset_after = reset_after;
        // Shadow rules are not decided if the enforced ones deny.
        self.rules.retain(|decided| !decided.is_shadow);
        for decided in &mut self.rules {
            let mut delayed = delayed.iter();
            decided.denies = delayed.any(|reservation| reservation.band.rule == decided.rule);
        }
        self.violated = delayed.iter().map(|reservation| reservation.band).collect();
        self
    }

    /// Returns the enforced bands with a delay, in the order of evaluation.
    fn delayed(&self) -> impl Iterator<Item = &BandReservation> {
        let enforced = |rule| {
            let mut decided = self.rules.iter();
            decided.any(|decided| decided.rule == rule && !decided.is_shadow)
        };
        let reservations = self.reservations.iter();
        reservations
            .filter(move |reservation| reservation.delay > Micros::ZERO)
            .filter(move |reservation| enforced(reservation.band.rule))
    }

    /// Returns the charge of a request that has to wait, to be cancelled if it does not go
    /// on. `context` must be that of the decision. `None` if the request need not wait or
    /// was not charged.
    pub fn charge(&self, context: &RequestContext<'_>) -> Option<Charge> {
        if !self.is_reserved() {
            return None;
        }
        let mut charge = Charge::new(self.set.clone()?, self.outcome);
        for decided in self.rules.iter().filter(|decided| !decided.denies) {
            let reservations = self.reservations_of(decided.rule);
            let charged = reservations.map(|it| it.charged).collect();
            charge.add(decided.rule, decided.bands.clone(), context, charged);
        }
        charge.hold = self.hold();
        (!charge.is_empty()).then_some(charge)
    }

    /// Returns when a request that has to wait goes on, by the clock of the store.
    pub(crate) fn resumes_at(&self) -> Timestamp {
        let decided = self.reservations.iter().map(|it| it.at.micros()).max();
        let at = decided.unwrap_or(0).saturating_add(self.delay.get());
        Timestamp::saturating_from_micros(at)
    }

    /// Returns the id by which any process can cancel the reservation, if it is kept.
    pub fn reservation(&self) -> Option<HoldId> {
        self.reservation
    }

    fn is_reserved(&self) -> bool {
        !self.reservations.is_empty() && self.allowed && self.outcome.charges()
    }

    fn reservations_of(&self, rule: u32) -> impl Iterator<Item = &BandReservation> {
        let reservations = self.reservations.iter();
        reservations.filter(move |reservation| reservation.band.rule == rule)
    }
}
