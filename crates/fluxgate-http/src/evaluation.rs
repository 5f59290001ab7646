//! Evaluates a request: every step of a filter except forwarding it.

use std::net::IpAddr;
use std::ops::Deref;

use fluxgate_core::path::RequestPath;
use fluxgate_core::store::{Micros, Mode, WaitPermit};
use fluxgate_core::{Outcome, RequestContext, RequestContextBuilder, WaitRefusal};
use tokio::time::{Instant, sleep_until};

use crate::context::ContextError;
use crate::filter::{Filter, LocalPermit};
use crate::handler::Handler;
use crate::report::Report;
use crate::request_head::{BadRequest, RequestHead};
use crate::request_hold::{HeldWhileWaiting, RequestHold};

/// A request to evaluate.
#[derive(Debug)]
pub struct IncomingRequest<'a, D> {
    /// Its method and headers.
    pub head: &'a D,
    /// All forms of its path ([`RequestPath::read`]).
    pub path: &'a RequestPath<'a>,
    /// The address of the peer, if it is known.
    pub peer: Option<IpAddr>,
}

impl<D> Clone for IncomingRequest<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for IncomingRequest<'_, D> {}

/// The result of evaluating a request.
#[derive(Clone, Debug)]
#[must_use]
pub enum FilterOutcome<R> {
    /// The filter does not apply to the request: forward it, without limit headers.
    Skipped,
    /// Forward the request. It has waited if it had to.
    Allowed(R),
    /// Answer with 429, with the status of the rule that forbids the request, or with
    /// [`Filter::failed_closed_status`] if the limiter failed closed.
    Denied(R),
    /// Answer with 400. The request was not charged.
    BadRequest(BadRequest),
    /// Answer with 401: the token is invalid, and the filter refuses such requests. The
    /// request was not charged.
    InvalidToken,
}

impl<R> From<ContextError> for FilterOutcome<R> {
    fn from(error: ContextError) -> Self {
        match error {
            ContextError::BadRequest(bad) => Self::BadRequest(bad),
            ContextError::InvalidToken => Self::InvalidToken,
        }
    }
}

/// Evaluates a request. The future waits if the request must; dropping it cancels the
/// reservation and releases the permits.
pub async fn evaluate<H: Handler>(
    filter: &Filter,
    handler: &H,
    request: IncomingRequest<'_, impl RequestHead + Sync>,
) -> FilterOutcome<H::Report> {
    let Some(rules) = filter.rules_for(handler, request.path) else {
        return FilterOutcome::Skipped;
    };
    match Evaluation::new(filter, handler, &rules, request, |context| context) {
        Ok(evaluation) => evaluation.evaluate().await,
        Err(error) => error.into(),
    }
}

/// The evaluation of one request by one version of the rules.
#[derive(Debug)]
pub struct Evaluation<'a, H: Handler> {
    filter: &'a Filter,
    handler: &'a H,
    rules: &'a H::Rules,
    context: RequestContext<'a>,
}

/// A request that must wait, or for which the handler must be awaited. Dropping it cancels its
/// reservation. `P` points to the handler.
#[must_use]
pub struct PendingEvaluation<'a, P: Deref<Target: Handler>> {
    context: RequestContext<'a>,
    next: NextStep<P>,
}

impl<'a, H: Handler> Evaluation<'a, H> {
    /// Starts to evaluate a request by these rules ([`Filter::rules_for`]). `customize` may change
    /// its context.
    ///
    /// # Errors
    /// If the request is ambiguous, or its token is invalid.
    pub fn new<D: RequestHead>(
        filter: &'a Filter,
        handler: &'a H,
        rules: &'a H::Rules,
        request: IncomingRequest<'a, D>,
        customize: impl FnOnce(RequestContextBuilder<'a>) -> RequestContextBuilder<'a>,
    ) -> Result<Self, ContextError> {
        let IncomingRequest { head, path, peer } = request;
        let names = handler.header_names(rules);
        let checked = handler.checked_header_names(rules);
        let context = filter.context(head, path, peer, names, checked)?;
        Ok(Self {
            filter,
            handler,
            rules,
            context: customize(context).build(),
        })
    }

    /// Returns the context of the request.
    pub fn context(&self) -> &RequestContext<'a> {
        &self.context
    }

    /// Evaluates the request, and waits if it must.
    pub async fn evaluate(&self) -> FilterOutcome<H::Report> {
        let (mode, local) = self.mode_and_permit();
        match self.try_decide(mode) {
            Ok(report) if !must_wait(&report) => self.conclude(report),
            decided => {
                let next = self.next_step(|| self.handler, decided, mode, local);
                // The future is large, and most requests do not need it.
                self.conclude(Box::pin(self.finish(next)).await)
            }
        }
    }

    /// Evaluates the request without waiting. If the request must wait or the handler must be
    /// awaited, [`PendingEvaluation::finish`] continues; it cancels reservations through the
    /// pointer that `handler` returns.
    #[expect(
        clippy::result_large_err,
        reason = "it is moved once, into the future that continues"
    )]
    pub fn try_evaluate<P: Deref<Target = H>>(
        self,
        handler: impl FnOnce() -> P,
    ) -> Result<FilterOutcome<H::Report>, PendingEvaluation<'a, P>> {
        let (mode, local) = self.mode_and_permit();
        match self.try_decide(mode) {
            Ok(report) if !must_wait(&report) => Ok(self.conclude(report)),
            decided => Err(PendingEvaluation {
                next: self.next_step(handler, decided, mode, local),
                context: self.context,
            }),
        }
    }

    /// Returns the next step for a request that must wait, or for which the handler must be
    /// awaited.
    fn next_step<P: Deref<Target = H>>(
        &self,
        handler: impl FnOnce() -> P,
        decided: Result<H::Report, H::Pending>,
        mode: Mode,
        local: Option<LocalPermit>,
    ) -> NextStep<P> {
        match decided {
            // The waiter must exist now: the future may be dropped before it is polled.
            Ok(report) => {
                let permits = (local, WaitPermit::unbounded());
                NextStep::Wait(self.waiter(handler(), report, Instant::now(), permits))
            }
            Err(pending) => NextStep::Decide(Undecided {
                pending,
                mode,
                local,
            }),
        }
    }

    /// Returns the report that the request would get now, without charging or recording it.
    pub async fn peek(&self) -> H::Report {
        self.decide(Mode::Peek).await
    }

    /// Returns the refusal that is certain from the head of the request, or `None` if it may still
    /// pass. Nothing is charged. Its context must not cost more than that of the final
    /// evaluation. A report that is not final is ignored.
    ///
    /// This comes before the expensive part of learning the whole cost, such as reading a
    /// body. It only peeks, so the one evaluation that follows still charges all rules or none;
    /// see [`Evaluation::hold_provisionally`] for the time until then. A request that may wait is
    /// not refused, and does not wait here: it would take a permit, and reserve units, for a
    /// request that may never become complete.
    pub async fn refusal(
        &self,
        is_final: impl FnOnce(&H::Report) -> bool,
    ) -> Option<FilterOutcome<H::Report>> {
        let report = self.peek().await;
        if report.allowed() || must_wait(&report) || !is_final(&report) {
            return None;
        }
        Some(self.conclude(report))
    }

    /// Charges the request until its evaluation. The caller has built a context that is
    /// [provisional](RequestContextBuilder::provisional) and
    /// [held](RequestContextBuilder::held), and releases the hold before the evaluation. It is not
    /// recorded, unless it is denied and that is final.
    ///
    /// Without it, requests whose bodies arrive slowly would all pass [`Evaluation::refusal`],
    /// however few may run at a time. Releasing it and evaluating the request are two steps, so
    /// another request may come in between; then this one is denied, which its limits allow.
    ///
    /// # Errors
    /// If the request is denied.
    pub async fn hold_provisionally(
        &self,
        is_final: impl FnOnce(&H::Report) -> bool,
    ) -> Result<Option<RequestHold>, FilterOutcome<H::Report>> {
        let report = self.decide(Mode::TakeNow).await;
        if report.allowed() {
            Ok(self.handler.hold(&report))
        } else if is_final(&report) {
            Err(self.conclude(report))
        } else {
            Ok(None)
        }
    }

    /// Decides in this mode, and awaits the handler if that is necessary.
    async fn decide(&self, mode: Mode) -> H::Report {
        match self.try_decide(mode) {
            Ok(report) => report,
            Err(pending) => self.complete(pending).await.0,
        }
    }

    fn try_decide(&self, mode: Mode) -> Result<H::Report, H::Pending> {
        let Self { handler, rules, .. } = self;
        handler.try_decide(self.rule_set(), rules, &self.context, mode)
    }

    /// Awaits the handler for a decision that could not be made at once.
    async fn complete(&self, pending: H::Pending) -> (H::Report, WaitPermit) {
        let Self { handler, rules, .. } = self;
        handler
            .decide(self.rule_set(), rules, &self.context, pending)
            .await
    }

    fn rule_set(&self) -> &'a str {
        self.filter.rule_set_name().unwrap_or_default()
    }

    /// Records the final report.
    fn conclude(&self, report: H::Report) -> FilterOutcome<H::Report> {
        self.handler.record(&self.context, &report);
        if report.allowed() {
            FilterOutcome::Allowed(report)
        } else {
            FilterOutcome::Denied(report)
        }
    }
}

/// Waiting.
impl<H: Handler> Evaluation<'_, H> {
    /// Returns the mode to decide the request in, and a permit of this process if its rules may
    /// delay it. Without a free permit, the rules must not delay it.
    fn mode_and_permit(&self) -> (Mode, Option<LocalPermit>) {
        if !self.handler.may_wait(self.rules) {
            return (Mode::Take, None);
        }
        match self.filter.permits.take() {
            Some(permit) => (Mode::Take, Some(permit)),
            None => (Mode::TakeNow, None),
        }
    }

    /// Creates a waiter from a report that was requested at `since`.
    fn waiter<P: Deref<Target = H>>(
        &self,
        handler: P,
        report: H::Report,
        since: Instant,
        (local, shared): (Option<LocalPermit>, WaitPermit),
    ) -> Waiter<P> {
        let charge = handler.charge(self.rule_set(), &self.context, &report);
        Waiter {
            reservation: Reservation::new(handler, since, charge),
            report,
            local,
            shared,
        }
    }

    /// Decides the request if that is left to do, waits if it must, and returns the final report.
    async fn finish<P: Deref<Target = H>>(&self, next: NextStep<P>) -> H::Report {
        match next {
            NextStep::Wait(waiter) => self.wait(waiter).await,
            NextStep::Decide(undecided) => {
                let since = Instant::now();
                let (report, permits) = self.decide_pending(undecided).await;
                if must_wait(&report) {
                    let waiter = self.waiter(self.handler, report, since, permits);
                    self.wait(waiter).await
                } else {
                    report
                }
            }
        }
    }

    /// Decides a request that the handler could not decide at once.
    ///
    /// Requests hold a permit while the store decides them, though most do not wait. So a
    /// request that was denied for want of a permit is decided again if one is free by then.
    async fn decide_pending(
        &self,
        undecided: Undecided<H>,
    ) -> (H::Report, (Option<LocalPermit>, WaitPermit)) {
        let Undecided {
            pending,
            mode,
            local,
        } = undecided;
        let (report, shared) = self.complete(pending).await;
        if mode == Mode::TakeNow
            && is_denied_by_limits(&report)
            && let Some(local) = self.filter.permits.take()
        {
            let (report, shared) = self.decide_again(self.rules).await;
            return (report, (Some(local), shared));
        }
        (report, (local, shared))
    }

    /// Waits for the reservation of a request, and returns the final report.
    ///
    /// A denial that is worth waiting for is decided once more after the wait. If that reserves
    /// units, the request waits for them too, within `max_wait` in total.
    async fn wait<P: Deref<Target = H>>(&self, waiter: Waiter<P>) -> H::Report {
        let Waiter {
            report,
            reservation,
            local,
            shared,
        } = waiter;
        let handler = self.handler;
        // Taking a permit counts as waiting. The timer rounds up, so no request proceeds early.
        let began = Instant::now();
        let retry = report.worth_waiting();
        let wait = retry.unwrap_or(report.delay());
        // A request that is decided again may have to wait again.
        let longest = { retry.and(report.max_wait()) }.map_or(wait, |most| most.max(wait));
        // Handlers that ignore the mode may delay a request that has no permit.
        let local = local.or_else(|| self.filter.permits.take());
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
        let current = handler.rules(self.rule_set());
        let known = handler.header_names(self.rules);
        let rules = if known.covers(handler.header_names(&current)) {
            &current
        } else {
            self.rules
        };
        let since = Instant::now();
        let (report, shared) = self.decide_again(rules).await;
        let delay = report.delay();
        if !report.allowed() || delay == Micros::ZERO {
            return report;
        }
        let second = self.waiter(handler, report, since, (None, shared));
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

    /// Decides a request that its limits have denied before and that may wait now.
    async fn decide_again(&self, rules: &H::Rules) -> (H::Report, WaitPermit) {
        let (handler, rule_set) = (self.handler, self.rule_set());
        let again = self.context.decided_again();
        match handler.try_decide(rule_set, rules, &again, Mode::Take) {
            Ok(report) => (report, WaitPermit::unbounded()),
            Err(pending) => handler.decide(rule_set, rules, &again, pending).await,
        }
    }
}

impl<H: Handler, P: Deref<Target = H>> PendingEvaluation<'_, P> {
    /// Detaches the evaluation from the request and its filter.
    pub fn into_owned(self) -> PendingEvaluation<'static, P> {
        PendingEvaluation {
            context: self.context.into_owned(),
            next: self.next,
        }
    }

    /// Continues the evaluation, with the filter, the handler and the rules that it began with.
    pub async fn finish(
        self,
        filter: &Filter,
        handler: &H,
        rules: &H::Rules,
    ) -> FilterOutcome<H::Report> {
        let evaluation = Evaluation {
            filter,
            handler,
            rules,
            context: self.context,
        };
        let report = evaluation.finish(self.next).await;
        evaluation.conclude(report)
    }
}

impl<P: Deref<Target: Handler>> std::fmt::Debug for PendingEvaluation<'_, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingEvaluation")
            .field("waits", &matches!(self.next, NextStep::Wait(_)))
            .finish_non_exhaustive()
    }
}

/// The next step of an evaluation.
enum NextStep<P>
where
    P: Deref<Target: Handler>,
{
    /// Await the handler.
    Decide(Undecided<P::Target>),
    /// Wait.
    Wait(Waiter<P>),
}

/// A request for which the handler must be awaited.
struct Undecided<H: Handler + ?Sized> {
    pending: H::Pending,
    mode: Mode,
    /// The permit of this process, if one was free.
    local: Option<LocalPermit>,
}

/// A request that must wait.
struct Waiter<P>
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

/// Returns whether a request is denied by limits that may pass it after a wait. They have
/// decided it, so those that charge in any case have charged it.
fn is_denied_by_limits(report: &impl Report) -> bool {
    !report.allowed() && matches!(report.outcome(), Outcome::Denied | Outcome::Fallback)
}

/// Returns whether a request must wait, for its reservation or to be decided again.
fn must_wait(report: &impl Report) -> bool {
    report.delay().get() > 0 || report.worth_waiting().is_some()
}

/// Records with a handler that a request waits, until it is dropped.
struct WaitGuard<'h, H: Handler>(&'h H);

impl<'h, H: Handler> WaitGuard<'h, H> {
    fn new(handler: &'h H) -> Self {
        handler.wait_began();
        Self(handler)
    }
}

impl<H: Handler> Drop for WaitGuard<'_, H> {
    fn drop(&mut self) {
        self.0.wait_ended();
    }
}

/// The units that a request has reserved. Dropping it cancels them, so it must exist from the
/// moment of the charge: the client may disconnect before the wait begins.
struct Reservation<P>
where
    P: Deref<Target: Handler>,
{
    handler: P,
    /// When the decision was requested.
    since: Instant,
    charge: Option<<P::Target as Handler>::Charge>,
}

impl<P> Reservation<P>
where
    P: Deref<Target: Handler>,
{
    fn new(handler: P, since: Instant, charge: Option<<P::Target as Handler>::Charge>) -> Self {
        Self {
            handler,
            since,
            charge,
        }
    }

    /// Keeps the units, as the request proceeds, and returns how long it has waited.
    fn keep(mut self) -> Micros {
        self.charge = None;
        Micros::from_duration(self.since.elapsed())
    }
}

impl<P> Drop for Reservation<P>
where
    P: Deref<Target: Handler>,
{
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.handler.cancel(charge);
        }
    }
}
