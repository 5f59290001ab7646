//! Requests that must wait.

use std::ops::Deref;

use fluxgate_core::{Micros, RequestContext};
use tokio::time::{Instant, sleep_until};

use super::{Filter, Judgement};
use crate::handler::{Handler, Wanted};
use crate::ruling::Ruling;
use crate::wait::Reservation;

/// A request that must wait: the answer, and what it took.
pub(crate) struct Waiter<P>
where
    P: Deref<Target: Handler>,
{
    ruling: <P::Target as Handler>::Ruling,
    reservation: Reservation<P>,
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
        ruling: <P::Target as Handler>::Ruling,
        since: Instant,
    ) -> Self {
        let charge = handler.charge(rule_set, context, &ruling);
        Self {
            reservation: Reservation::new(handler, since, charge),
            ruling,
        }
    }
}

impl Filter {
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
    ) -> Judgement<H::Ruling> {
        let Waiter {
            ruling,
            reservation,
        } = waiter;
        // From now, for to find a place takes its time as well. The timer rounds
        // up, so nobody goes early.
        let began = Instant::now();
        let again = ruling.worth_waiting();
        let wait = again.unwrap_or(ruling.delay());
        // Who asks again may have to wait again, in the same place.
        let longest = { again.and(ruling.max_wait()) }.map_or(wait, |most| most.max(wait));
        let outcome = ruling.outcome();
        let Some(_seat) = self.waits.take(handler, longest, outcome).await else {
            drop(reservation);
            let refused = if again.is_some() {
                ruling
            } else {
                ruling.into_denied()
            };
            return Self::settle(handler, context, refused);
        };
        sleep_until(began + wait.as_duration()).await;
        if again.is_none() {
            return Self::settle_waited(handler, context, ruling, reservation);
        }

        // They may have changed meanwhile. Those that ask about what was not read
        // of this request are for the next.
        let now = handler.rules(rule_set);
        let is_read = reads(handler.wanted_headers(rules), handler.wanted_headers(&now));
        let rules = if is_read { &now } else { rules };
        let asked = Instant::now();
        let ruling = handler.decide(rule_set, rules, context).await;
        let delay = ruling.delay();
        if !ruling.allowed() || delay == Micros::ZERO {
            return Self::settle(handler, context, ruling);
        }
        let second = Waiter::new(handler, rule_set, context, ruling, asked);
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
        ruling: H::Ruling,
        reservation: Reservation<P>,
    ) -> Judgement<H::Ruling> {
        let ruling = ruling.after(reservation.age());
        reservation.keep();
        Self::settle(handler, context, ruling)
    }
}

/// Whether whoever read the first has all of the second.
fn reads(first: Wanted<'_>, second: Wanted<'_>) -> bool {
    match (first, second) {
        (Wanted::All, _) => true,
        (Wanted::Only(_), Wanted::All) => false,
        (Wanted::Only(first), Wanted::Only(second)) => {
            second.iter().all(|name| first.contains(name))
        }
    }
}

/// Whether a request waits: for what it reserved, or to be asked about again.
pub(crate) fn must_wait(ruling: &impl Ruling) -> bool {
    ruling.delay().get() > 0 || ruling.worth_waiting().is_some()
}
