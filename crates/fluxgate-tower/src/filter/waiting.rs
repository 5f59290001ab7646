//! Requests that must wait.

use std::ops::Deref;

use fluxgate_core::store::{Micros, Mode, WaitPermit};
use fluxgate_core::{Outcome, RequestContext, WaitRefusal};
use tokio::time::{Instant, sleep_until};

use super::Filter;
use super::wait_permits::{LocalPermit, Reservation, WaitGuard};
use crate::handler::{Handler, HeaderNames};
use crate::report::Report;
use crate::request_hold::HeldWhileWaiting;

/// The next step of an evaluation.
pub(crate) enum NextStep<P>
where
    P: Deref<Target: Handler>,
{
    /// Await the handler.
    Decide(Undecided<P::Target>),
    /// Wait.
    Wait(Waiter<P>),
}

/// A request for which the handler must be awaited.
pub(crate) struct Undecided<H: Handler + ?Sized> {
    pub(crate) pending: H::Pending,
    pub(crate) mode: Mode,
    /// The permit of this process, if one was free.
    pub(crate) local: Option<LocalPermit>,
}

/// A request that must wait.
pub(crate) struct Waiter<P>
where
    P: Deref<Target: Handler>,
{
    report: <P::Target as Handler>::Report,
    reservation: Reservation<P>,
    /// The permit of this process, if one was free.
    local: Option<LocalPermit>,
    /// The permit among the waiters of all processes.
    shared: WaitPermit,
}

impl<P> Waiter<P>
where
    P: Deref<Target: Handler>,
{
    /// Creates a waiter from a report that was requested at `since`.
    pub(crate) fn new(
        handler: P,
        rule_set: &str,
        context: &RequestContext<'_>,
        report: <P::Target as Handler>::Report,
        since: Instant,
        (local, shared): (Option<LocalPermit>, WaitPermit),
    ) -> Self {
        let charge = handler.charge(rule_set, context, &report);
        Self {
            reservation: Reservation::new(handler, since, charge),
            report,
            local,
            shared,
        }
    }
}

impl Filter {
    /// Returns the mode to decide a request in, and a permit of this process if its rules may
    /// delay it. Without a free permit, the rules must not delay it.
    pub(crate) fn mode_and_permit<H: Handler>(
        &self,
        handler: &H,
        rules: &H::Rules,
    ) -> (Mode, Option<LocalPermit>) {
        if !handler.may_wait(rules) {
            return (Mode::Take, None);
        }
        match self.permits.take() {
            Some(permit) => (Mode::Take, Some(permit)),
            None => (Mode::TakeNow, None),
        }
    }

    /// Decides a request that the handler could not decide at once.
    ///
    /// Requests hold a permit while the store decides them, though most do not wait. So a
    /// request that was denied for want of a permit is decided again if one is free by then.
    pub(super) async fn decide<H: Handler>(
        &self,
        handler: &H,
        rule_set: &str,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        undecided: Undecided<H>,
    ) -> (H::Report, (Option<LocalPermit>, WaitPermit)) {
        let Undecided {
            pending,
            mode,
            local,
        } = undecided;
        let (report, shared) = handler.decide(rule_set, rules, context, pending).await;
        if mode == Mode::TakeNow
            && is_denied_by_limits(&report)
            && let Some(local) = self.permits.take()
        {
            let (report, shared) = decide_again(handler, rule_set, rules, context).await;
            return (report, (Some(local), shared));
        }
        (report, (local, shared))
    }

    /// Waits for the reservation of a request, and returns the final report.
    ///
    /// A denial that is worth waiting for is decided once more after the wait. If that reserves
    /// units, the request waits for them too, within `max_wait` in total.
    pub(super) async fn wait<H: Handler, P: Deref<Target = H>>(
        &self,
        handler: &H,
        rule_set: &str,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        waiter: Waiter<P>,
    ) -> H::Report {
        let Waiter {
            report,
            reservation,
            local,
            shared,
        } = waiter;
        // Taking a permit counts as waiting. The timer rounds up, so no request proceeds early.
        let began = Instant::now();
        let retry = report.worth_waiting();
        let wait = retry.unwrap_or(report.delay());
        // A request that is decided again may have to wait again.
        let longest = { retry.and(report.max_wait()) }.map_or(wait, |most| most.max(wait));
        // Handlers that ignore the mode may delay a request that has no permit.
        let local = local.or_else(|| self.permits.take());
        let shared = match (retry, report.outcome()) {
            _ if local.is_none() => None,
            (None, _) => Some(shared),
            // The store has failed, and would only delay the request.
            (Some(_), Outcome::Fallback) => Some(WaitPermit::unbounded()),
            (Some(_), _) => handler.begin_wait(longest.as_duration()).await,
        };
        let (Some(_local), Some(_shared)) = (local, shared) else {
            drop(reservation);
            let denied = match retry {
                Some(_) => report,
                None => report.into_denied(),
            };
            return denied.refuse_wait(WaitRefusal::TooMany);
        };
        let _guard = WaitGuard::new(handler);
        let _held = HeldWhileWaiting::new(handler.hold(&report));
        sleep_until(began + wait.as_duration()).await;
        if retry.is_none() {
            return report.after(reservation.keep());
        }

        // The current rules decide, unless they read headers that the context does not have.
        let current = handler.rules(rule_set);
        let is_covered = covers(handler.header_names(rules), handler.header_names(&current));
        let rules = if is_covered { &current } else { rules };
        let asked = Instant::now();
        let (report, shared) = decide_again(handler, rule_set, rules, context).await;
        let delay = report.delay();
        if !report.allowed() || delay == Micros::ZERO {
            return report;
        }
        let permits = (None, shared);
        let second = Waiter::new(handler, rule_set, context, report, asked, permits);
        let until = Instant::now() + delay.as_duration();
        let total = Micros::from_duration(until.saturating_duration_since(began));
        if { second.report.max_wait() }.is_some_and(|most| total > most) {
            drop(second.reservation);
            return second
                .report
                .into_denied()
                .refuse_wait(WaitRefusal::TooLong);
        }
        let _held = HeldWhileWaiting::new(handler.hold(&second.report));
        sleep_until(until).await;
        second.report.after(second.reservation.keep())
    }
}

/// Decides a request that its limits have denied before and that may wait now.
async fn decide_again<H: Handler>(
    handler: &H,
    rule_set: &str,
    rules: &H::Rules,
    context: &RequestContext<'_>,
) -> (H::Report, WaitPermit) {
    let again = context.decided_again();
    match handler.try_decide(rule_set, rules, &again, Mode::Take) {
        Ok(report) => (report, WaitPermit::unbounded()),
        Err(pending) => handler.decide(rule_set, rules, &again, pending).await,
    }
}

/// Returns whether a request is denied by limits that may pass it after a wait. They have
/// decided it, so those that charge in any case have charged it.
fn is_denied_by_limits(report: &impl Report) -> bool {
    !report.allowed() && matches!(report.outcome(), Outcome::Denied | Outcome::Fallback)
}

/// Returns whether the first selection includes every header of the second.
fn covers(first: HeaderNames<'_>, second: HeaderNames<'_>) -> bool {
    match (first, second) {
        (HeaderNames::All, _) => true,
        (HeaderNames::Only(_), HeaderNames::All) => false,
        (HeaderNames::Only(first), HeaderNames::Only(second)) => {
            second.iter().all(|name| first.contains(name))
        }
    }
}

/// Returns whether a request must wait, for its reservation or to be decided again.
pub(crate) fn must_wait(report: &impl Report) -> bool {
    report.delay().get() > 0 || report.worth_waiting().is_some()
}
