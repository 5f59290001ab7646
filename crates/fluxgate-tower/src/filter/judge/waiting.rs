//! Requests that must wait.

use std::ops::Deref;

use fluxgate_core::{Micros, Mode, RequestContext, WaitPermit};
use tokio::time::{Instant, sleep_until};

use super::{Filter, FilterOutcome, Undecided};
use crate::handler::{Handler, HeaderNames};
use crate::ruling::Report;
use crate::wait::{LocalPlace, Places, Reservation, Waiting};

/// A request that must wait: the answer, what it took, and where it waits.
pub(crate) struct Waiter<P>
where
    P: Deref<Target: Handler>,
{
    ruling: <P::Target as Handler>::Report,
    reservation: Reservation<P>,
    /// The place in this process; `None` if there was none.
    here: Option<LocalPlace>,
    /// The place among the waiters of all processes.
    everywhere: WaitPermit,
}

impl<P> Waiter<P>
where
    P: Deref<Target: Handler>,
{
    /// One that was answered so when it was asked about at `since`.
    pub(crate) fn new(
        handler: P,
        rule_set: &str,
        context: &RequestContext<'_>,
        ruling: <P::Target as Handler>::Report,
        since: Instant,
        (here, everywhere): (Option<LocalPlace>, WaitPermit),
    ) -> Self {
        let charge = handler.charge(rule_set, context, &ruling);
        Self {
            reservation: Reservation::new(handler, since, charge),
            ruling,
            here,
            everywhere,
        }
    }
}

impl Filter {
    /// How a request is to be decided, and the place it has in this process if it has
    /// to wait: where these rules let requests wait, only one that has a place may.
    pub(crate) fn place<H: Handler>(
        &self,
        handler: &H,
        rules: &H::Rules,
    ) -> (Mode, Option<LocalPlace>) {
        if !handler.may_wait(rules) {
            return (Mode::Take, None);
        }
        match self.waits.take() {
            Some(place) => (Mode::Take, Some(place)),
            None => (Mode::TakeNow, None),
        }
    }

    /// Decides a request that the handler could not decide at once.
    ///
    /// Requests that are on their way to the store have a place each, most of them
    /// for nothing. So one that was refused for want of a place asks again if there is
    /// one by now.
    pub(super) async fn decide<H: Handler>(
        &self,
        handler: &H,
        rule_set: &str,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        undecided: Undecided<H>,
    ) -> (H::Report, (Option<LocalPlace>, WaitPermit)) {
        let Undecided {
            pending,
            mode,
            here,
        } = undecided;
        let (ruling, everywhere) = handler.decide(rule_set, rules, context, pending).await;
        if mode == Mode::TakeNow
            && !ruling.allowed()
            && let Some(here) = self.waits.take()
        {
            let decided = decide_again(handler, rule_set, rules, context).await;
            let (ruling, everywhere) = decided;
            return (ruling, (Some(here), everywhere));
        }
        (ruling, (here, everywhere))
    }

    /// How a request fares that must wait.
    ///
    /// What was reserved is waited for. A denial that is worth waiting for is
    /// waited out, and asked about again, once; if that reserves, the reservation
    /// is waited for as well, so far as its rules let wait in all. There is one
    /// place for both.
    pub(super) async fn wait<H: Handler, P: Deref<Target = H>>(
        &self,
        handler: &H,
        rule_set: &str,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        waiter: Waiter<P>,
    ) -> FilterOutcome<H::Report> {
        let Waiter {
            ruling,
            reservation,
            here,
            everywhere,
        } = waiter;
        // From now, for to find a place takes its time as well. The timer rounds
        // up, so nobody goes early.
        let began = Instant::now();
        let again = ruling.worth_waiting();
        let wait = again.unwrap_or(ruling.delay());
        // Who asks again may have to wait again, in the same place.
        let longest = { again.and(ruling.max_wait()) }.map_or(wait, |most| most.max(wait));
        // A handler that knows nothing of places may let a request wait without one.
        let here = here.or_else(|| self.waits.take());
        let places = match (here, again) {
            (None, _) => None,
            (Some(here), None) => Some(Places::new(here, everywhere)),
            (Some(here), Some(_)) => {
                Places::to_ask_again(here, handler, longest, ruling.outcome()).await
            }
        };
        let Some(_places) = places else {
            drop(reservation);
            let refused = if again.is_some() {
                ruling
            } else {
                ruling.into_denied()
            };
            return Self::settle(handler, context, refused);
        };
        let _waiting = Waiting::begin(handler);
        sleep_until(began + wait.as_duration()).await;
        if again.is_none() {
            return Self::settle_waited(handler, context, ruling, reservation);
        }

        // They may have changed meanwhile. Those that ask about what was not read
        // of this request are for the next.
        let now = handler.rules(rule_set);
        let is_read = reads(handler.header_names(rules), handler.header_names(&now));
        let rules = if is_read { &now } else { rules };
        let asked = Instant::now();
        let decided = decide_again(handler, rule_set, rules, context).await;
        let (ruling, everywhere) = decided;
        let delay = ruling.delay();
        if !ruling.allowed() || delay == Micros::ZERO {
            return Self::settle(handler, context, ruling);
        }
        let places = (None, everywhere);
        let second = Waiter::new(handler, rule_set, context, ruling, asked, places);
        let until = Instant::now() + delay.as_duration();
        let in_all = Micros::from_duration(until.saturating_duration_since(began));
        if { second.ruling.max_wait() }.is_some_and(|most| in_all > most) {
            drop(second.reservation);
            return Self::settle(handler, context, second.ruling.into_denied());
        }
        sleep_until(until).await;
        Self::settle_waited(handler, context, second.ruling, second.reservation)
    }

    /// How a request fares that has waited for what it reserved.
    fn settle_waited<H: Handler, P: Deref<Target = H>>(
        handler: &H,
        context: &RequestContext<'_>,
        ruling: H::Report,
        reservation: Reservation<P>,
    ) -> FilterOutcome<H::Report> {
        let ruling = ruling.after(reservation.age());
        reservation.keep();
        Self::settle(handler, context, ruling)
    }
}

/// Decides a request that was denied before and may wait now.
async fn decide_again<H: Handler>(
    handler: &H,
    rule_set: &str,
    rules: &H::Rules,
    context: &RequestContext<'_>,
) -> (H::Report, WaitPermit) {
    match handler.try_decide(rule_set, rules, context, Mode::Take) {
        Ok(ruling) => (ruling, WaitPermit::unbounded()),
        Err(pending) => handler.decide(rule_set, rules, context, pending).await,
    }
}

/// Whether whoever read the first has all of the second.
fn reads(first: HeaderNames<'_>, second: HeaderNames<'_>) -> bool {
    match (first, second) {
        (HeaderNames::All, _) => true,
        (HeaderNames::Only(_), HeaderNames::All) => false,
        (HeaderNames::Only(first), HeaderNames::Only(second)) => {
            second.iter().all(|name| first.contains(name))
        }
    }
}

/// Whether a request waits: for what it reserved, or to be asked about again.
pub(crate) fn must_wait(ruling: &impl Report) -> bool {
    ruling.delay().get() > 0 || ruling.worth_waiting().is_some()
}
