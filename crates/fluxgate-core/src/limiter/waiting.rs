//! Requests that wait for their units, and reservations that other processes cancel.

use super::Limiter;
use crate::algorithm::Mode;
use crate::context::RequestContext;
use crate::decision::Decision;
#[cfg(feature = "tokio")]
use crate::decision::WaitRefusal;
use crate::hold::HoldId;
use crate::reservation::Reservation;
use crate::store::{KeptReservation, Store, StoreError, WaitPermit};
use crate::task;

impl<S: Store + 'static> Limiter<S> {
    /// Decides a request and charges it if it passes, now or after a wait that its rules
    /// allow. Returns the decision as an error if it is denied.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mails = Rule::new("mails")
    ///     .global()
    ///     .band(Quota::per_minute(1))
    ///     .wait_up_to(Duration::from_secs(60));
    /// let rules = RuleSet::builder("outgoing").rule(mails).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let outgoing = limiter.rule_set("outgoing")?;
    /// let context = RequestContext::default();
    /// let first = outgoing.reserve(&context).await.unwrap();
    /// assert_eq!(first.into_delay(), Duration::ZERO);
    /// let second = outgoing.reserve(&context).await.unwrap();
    /// assert!(second.delay() > Duration::from_secs(59));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Reservation<Decision>, Decision> {
        let reserved = self.try_reserve(rule_set, context).await;
        reserved.inspect_err(|denied| self.observe_refused_wait(denied))
    }

    /// Reserves like [`Limiter::reserve`], for a caller that may still wait after a denial.
    async fn try_reserve(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Reservation<Decision>, Decision> {
        let (decision, permit) = match self.active_rule_set(rule_set) {
            Some(set) => self.check_with_permit(&set, context, Mode::Take).await,
            None => (self.missing_rule_set(rule_set), WaitPermit::unbounded()),
        };
        if !decision.allowed() {
            return Err(decision);
        }
        let charge = decision.charge(context);
        let delay = decision.delay();
        let limiter = self.clone();
        Ok(Reservation::new(decision, delay, permit, move || {
            if let Some(charge) = charge {
                // The state expires by itself.
                let at_once = limiter.0.store.answers_at_once();
                let cancel = async move {
                    let _ = limiter.cancel(charge).await;
                };
                task::run(cancel, at_once);
            }
        }))
    }

    /// Decides a request, and waits for its units if its rules allow that. Returns the
    /// decision as an error if it is denied. Dropping the future cancels the wait.
    ///
    /// Buckets reserve their units, so waiting requests are served in order. For a window or
    /// log the request is decided a second time when there is room.
    #[cfg(feature = "tokio")]
    pub async fn until_ready(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Decision, Decision> {
        let ready = self.wait_until_ready(rule_set, context).await;
        ready.inspect_err(|denied| self.observe_refused_wait(denied))
    }

    #[cfg(feature = "tokio")]
    async fn wait_until_ready(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Decision, Decision> {
        let denied = match self.try_reserve(rule_set, context).await {
            Ok(reservation) => return Ok(self.wait_for(reservation).await),
            Err(denied) => denied,
        };
        let Some(wait) = denied.worth_waiting() else {
            return Err(denied);
        };
        let wait = wait.as_duration();
        // If the store fails, nothing bounds the waits.
        let permit = self.0.store.begin_wait(wait).await;
        let Some(_permit) = permit.unwrap_or(Some(WaitPermit::unbounded())) else {
            return Err(denied.refuse_wait(WaitRefusal::TooMany));
        };
        {
            let _waiting = ObservedWait::begin(self);
            tokio::time::sleep(wait).await;
        }
        let again = context.decided_again();
        let reservation = self.try_reserve(rule_set, &again).await?;
        Ok(self.wait_for(reservation).await)
    }

    #[cfg(feature = "tokio")]
    async fn wait_for(&self, reservation: Reservation<Decision>) -> Decision {
        let is_delayed = !reservation.delay().is_zero();
        let _waiting = is_delayed.then(|| ObservedWait::begin(self));
        reservation.wait().await
    }
}

impl<S: Store> Limiter<S> {
    /// Keeps what a delayed decision has reserved until the request goes on, so that any
    /// process can cancel it by [`Decision::reservation`]. `context` must be that of the
    /// decision. Does nothing if nothing is reserved, or it is kept already.
    pub async fn keep_reservation(
        &self,
        decision: &mut Decision,
        context: &RequestContext<'_>,
    ) -> Result<(), StoreError> {
        if decision.reservation().is_some() {
            return Ok(());
        }
        let Some(charge) = decision.charge(context) else {
            return Ok(());
        };
        let hold = decision.hold();
        let reservation = KeptReservation {
            id: hold.unwrap_or_else(HoldId::random),
            until: decision.resumes_at(),
            wait: decision.delay_micros(),
            is_held: hold.is_some(),
            charges: charge.iter().collect(),
        };
        let kept = match (charge.by_fallback, self.0.fallback.store()) {
            (false, _) => self.0.store.keep_reservation(&reservation).await?,
            (true, Some(fallback)) => fallback.keep_reservation(&reservation).await?,
            (true, None) => false,
        };
        if kept {
            decision.reservation = Some(reservation.id);
        }
        Ok(())
    }

    /// Cancels a reservation: its units return, except those that later reservations were
    /// queued behind, and its hold ends if it has one. Returns `false`, and changes nothing, if
    /// there is no such reservation, it has been cancelled, or the request has gone on.
    pub async fn cancel_reservation(&self, id: HoldId) -> Result<bool, StoreError> {
        // The fallback knows only what it charged itself while the store failed.
        if let Some(fallback) = self.0.fallback.store()
            && fallback.cancel_reservation(id).await?
        {
            return Ok(true);
        }
        self.0.store.cancel_reservation(id).await
    }
}

/// Tells the observers that a request waits, until it is dropped.
#[cfg(feature = "tokio")]
struct ObservedWait<'l, S: Store>(&'l Limiter<S>);

#[cfg(feature = "tokio")]
impl<'l, S: Store> ObservedWait<'l, S> {
    fn begin(limiter: &'l Limiter<S>) -> Self {
        limiter.observe_wait_began();
        Self(limiter)
    }
}

#[cfg(feature = "tokio")]
impl<S: Store> Drop for ObservedWait<'_, S> {
    fn drop(&mut self) {
        self.0.observe_wait_ended();
    }
}
