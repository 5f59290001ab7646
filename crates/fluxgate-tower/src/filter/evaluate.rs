//! Evaluates a request, step by step.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use fluxgate_core::path::RequestPath;
use fluxgate_core::store::{Mode, WaitPermit};
use fluxgate_core::{RequestContext, RequestContextBuilder};
use tokio::time::Instant;

use super::Filter;
use super::waiting::{NextStep, Undecided, Waiter, must_wait};
use crate::context::{self, ContextError};
use crate::handler::Handler;
use crate::report::Report;
use crate::request_head::{BadRequest, RequestHead};
use crate::request_hold::RequestHold;

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

/// A request that must wait, or for which the handler must be awaited. Dropping it cancels its
/// reservation.
#[must_use]
pub struct PendingEvaluation<'a, H: Handler> {
    rules: &'a H::Rules,
    context: RequestContext<'a>,
    next: NextStep<&'a H>,
}

impl<H: Handler> std::fmt::Debug for PendingEvaluation<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingEvaluation")
            .field("waits", &matches!(self.next, NextStep::Wait(_)))
            .finish_non_exhaustive()
    }
}

impl Filter {
    /// Evaluates a request: every step except forwarding it. `path` holds both forms of its
    /// path ([`RequestPath::read`]). The future waits if the request must; dropping it cancels
    /// the reservation and releases the permits.
    pub async fn evaluate<H: Handler>(
        &self,
        handler: &H,
        head: &(impl RequestHead + Sync),
        path: &RequestPath<'_>,
        peer: Option<IpAddr>,
    ) -> FilterOutcome<H::Report> {
        let Some(rules) = self.rules_for(handler, path) else {
            return FilterOutcome::Skipped;
        };
        match self.try_evaluate(handler, &rules, head, path, peer) {
            Ok(outcome) => outcome,
            // The future is large, and most requests do not need it.
            Err(pending) => Box::pin(self.evaluate_pending(handler, pending)).await,
        }
    }

    /// Returns the rules that decide requests for this path, if the filter applies to them.
    pub fn rules_for<H: Handler>(&self, handler: &H, path: &RequestPath<'_>) -> Option<H::Rules> {
        Some(handler.rules(self.rule_set_for(path)?))
    }

    /// Evaluates a request like [`Filter::evaluate`], by these rules and without waiting. If
    /// the request must wait or the handler must be awaited, [`Filter::evaluate_pending`]
    /// continues.
    #[expect(
        clippy::result_large_err,
        reason = "it is moved once, into the future that continues"
    )]
    pub fn try_evaluate<'a, H: Handler>(
        &'a self,
        handler: &'a H,
        rules: &'a H::Rules,
        head: &'a impl RequestHead,
        path: &'a RequestPath<'_>,
        peer: Option<IpAddr>,
    ) -> Result<FilterOutcome<H::Report>, PendingEvaluation<'a, H>> {
        self.try_evaluate_with(handler, rules, (head, path), peer, |context| context)
    }

    /// Evaluates a request like [`Filter::evaluate`], by these rules. `customize` may change
    /// its context.
    pub async fn evaluate_with<'a, H: Handler>(
        &'a self,
        handler: &'a H,
        rules: &'a H::Rules,
        request: (&'a (impl RequestHead + Sync), &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        customize: impl FnOnce(RequestContextBuilder<'a>) -> RequestContextBuilder<'a>,
    ) -> FilterOutcome<H::Report> {
        match self.try_evaluate_with(handler, rules, request, peer, customize) {
            Ok(outcome) => outcome,
            Err(pending) => Box::pin(self.evaluate_pending(handler, pending)).await,
        }
    }

    /// Returns the report that a request would get now, without charging or recording it.
    /// `customize` may change its context. Returns `None` if the filter rejects it anyway.
    pub async fn peek<'a, H: Handler>(
        &'a self,
        handler: &'a H,
        rules: &'a H::Rules,
        request: (&'a (impl RequestHead + Sync), &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        customize: impl FnOnce(RequestContextBuilder<'a>) -> RequestContextBuilder<'a>,
    ) -> Option<H::Report> {
        let customize = |context, _: &_| customize(context);
        let context = self.context(handler, rules, request, peer, customize);
        let context = context.ok()?;
        Some(self.report(handler, rules, &context, Mode::Peek).await)
    }

    /// Returns how a request is refused by what is known of it now, or `None` if it may still
    /// pass. Nothing is charged. `customize` may change its context, which must not cost more
    /// than that of the final evaluation. A report that is not final is ignored.
    ///
    /// This comes before the expensive part of learning the whole cost, such as reading a
    /// body. It only peeks, so the one evaluation that follows still charges all rules or none;
    /// see [`Filter::hold_provisionally`] for the time until then. A request that may wait is
    /// not refused, and does not wait here: it would take a permit, and reserve units, for a
    /// request that may never become complete.
    pub async fn refusal<'a, H: Handler>(
        &'a self,
        handler: &'a H,
        rules: &'a H::Rules,
        request: (&'a (impl RequestHead + Sync), &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        customize: impl FnOnce(RequestContextBuilder<'a>) -> RequestContextBuilder<'a>,
        is_final: impl FnOnce(&H::Report) -> bool,
    ) -> Option<FilterOutcome<H::Report>> {
        let customize = |context, _: &_| customize(context);
        let context = match self.context(handler, rules, request, peer, customize) {
            Ok(context) => context,
            Err(error) => return Some(error.into()),
        };
        let report = self.report(handler, rules, &context, Mode::Peek).await;
        if report.allowed() || must_wait(&report) || !is_final(&report) {
            return None;
        }
        Some(Self::conclude(handler, &context, report))
    }

    /// Charges a request by the rules that need nothing but its head, until its evaluation. The
    /// caller releases the hold before that. It is not recorded, unless it is denied and that is
    /// final.
    ///
    /// Without it, requests whose bodies arrive slowly would all pass [`Filter::refusal`], however
    /// few may run at a time. Releasing it and evaluating the request are two steps, so another
    /// request may come in between; then this one is denied, which its limits allow.
    ///
    /// # Errors
    /// If the request is denied, or it is bad.
    pub async fn hold_provisionally<'a, H: Handler>(
        &'a self,
        handler: &'a H,
        rules: &'a H::Rules,
        request: (&'a (impl RequestHead + Sync), &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        is_final: impl FnOnce(&H::Report) -> bool,
    ) -> Result<Option<RequestHold>, FilterOutcome<H::Report>> {
        let customize = |context: RequestContextBuilder<'a>, _: &_| context.provisional().held();
        let context = self.context(handler, rules, request, peer, customize)?;
        let report = self.report(handler, rules, &context, Mode::TakeNow).await;
        if report.allowed() {
            Ok(handler.hold(&report))
        } else if is_final(&report) {
            Err(Self::conclude(handler, &context, report))
        } else {
            Ok(None)
        }
    }

    /// Decides a request in this mode, and waits for the handler if that is necessary.
    async fn report<H: Handler>(
        &self,
        handler: &H,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> H::Report {
        let rule_set = self.rule_set.as_deref().unwrap_or_default();
        match handler.try_decide(rule_set, rules, context, mode) {
            Ok(report) => report,
            Err(pending) => { handler.decide(rule_set, rules, context, pending).await }.0,
        }
    }

    #[expect(
        clippy::result_large_err,
        reason = "it is moved once, into the future that continues"
    )]
    fn try_evaluate_with<'a, H: Handler>(
        &'a self,
        handler: &'a H,
        rules: &'a H::Rules,
        (head, path): (&'a impl RequestHead, &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        customize: impl FnOnce(RequestContextBuilder<'a>) -> RequestContextBuilder<'a>,
    ) -> Result<FilterOutcome<H::Report>, PendingEvaluation<'a, H>> {
        let rule_set = self.rule_set.as_deref().unwrap_or_default();
        let customize = |context, _: &_| customize(context);
        let context = match self.context(handler, rules, (head, path), peer, customize) {
            Ok(context) => context,
            Err(error) => return Ok(error.into()),
        };
        let (mode, local) = self.mode_and_permit(handler, rules);
        let next = match handler.try_decide(rule_set, rules, &context, mode) {
            Ok(report) if !must_wait(&report) => {
                return Ok(Self::conclude(handler, &context, report));
            }
            Ok(report) => {
                let permits = (local, WaitPermit::unbounded());
                let now = Instant::now();
                let waiter = Waiter::new(handler, rule_set, &context, report, now, permits);
                NextStep::Wait(waiter)
            }
            Err(pending) => NextStep::Decide(Undecided {
                pending,
                mode,
                local,
            }),
        };
        Err(PendingEvaluation {
            rules,
            context,
            next,
        })
    }

    /// Continues an evaluation that could not be finished at once.
    pub async fn evaluate_pending<H: Handler>(
        &self,
        handler: &H,
        pending: PendingEvaluation<'_, H>,
    ) -> FilterOutcome<H::Report> {
        let PendingEvaluation {
            rules,
            context,
            next,
        } = pending;
        self.finish(handler, rules, &context, next).await
    }

    /// Decides a request if that is left to do, and waits if it must.
    pub(crate) async fn finish<H: Handler, P: Deref<Target = H>>(
        &self,
        handler: &H,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        next: NextStep<P>,
    ) -> FilterOutcome<H::Report> {
        let rule_set = self.rule_set.as_deref().unwrap_or_default();
        let report = match next {
            NextStep::Wait(waiter) => self.wait(handler, rule_set, rules, context, waiter).await,
            NextStep::Decide(undecided) => {
                let asked = Instant::now();
                let decided = self.decide(handler, rule_set, rules, context, undecided);
                let (report, permits) = decided.await;
                if must_wait(&report) {
                    let waiter = Waiter::new(handler, rule_set, context, report, asked, permits);
                    self.wait(handler, rule_set, rules, context, waiter).await
                } else {
                    report
                }
            }
        };
        Self::conclude(handler, context, report)
    }

    /// Steps 1 to 3: returns the rule set that decides requests for this path, if the filter
    /// applies to them.
    pub fn rule_set_for(&self, path: &RequestPath<'_>) -> Option<&str> {
        if self.ignores_case && !path.ignores_case() {
            return self.rule_set_for(&path.borrowed().ignoring_case());
        }
        if self.exclude.contains_both(path) {
            self.log_skipped(path, "excluded");
            return None;
        }
        let included = match &self.include {
            Some(include) => include.contains_either(path),
            None => path.raw().starts_with('/'),
        };
        if !included {
            self.log_skipped(path, "not included");
            return None;
        }
        if self.rule_set.is_none() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("a filter has no rule set: everything passes");
        }
        self.rule_set.as_deref()
    }

    /// Logs that the filter skips a request, to show why a path is not limited.
    fn log_skipped(&self, path: &RequestPath<'_>, reason: &'static str) {
        tracing::debug!(
            rule_set = self.rule_set.as_deref(),
            path = path.raw(),
            reason,
            "the filter skips the request"
        );
    }

    /// Steps 4 and 5: builds the context of a request, and lets `customize` change it.
    pub(crate) fn context<'a, H: Handler, D: RequestHead>(
        &'a self,
        handler: &'a H,
        rules: &'a H::Rules,
        (head, path): (&'a D, &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        customize: impl FnOnce(RequestContextBuilder<'a>, &'a D) -> RequestContextBuilder<'a>,
    ) -> Result<RequestContext<'a>, ContextError> {
        let (proxies, source) = (&self.trusted_proxies, self.client_ip.of(head));
        let ip = if self.trusts_peer {
            proxies.forwarded_client_ip(source, head)
        } else {
            proxies.client_ip(peer, source, head)
        };
        let names = handler.header_names(rules);
        let checked = handler.checked_header_names(rules);
        let path = if self.ignores_case {
            path.borrowed().ignoring_case()
        } else {
            path.borrowed()
        };
        let context = context::from_head(head, path, ip, &self.sources, names, checked)?;
        Ok(customize(context, head).build())
    }

    /// Records the final report.
    fn conclude<H: Handler>(
        handler: &H,
        context: &RequestContext<'_>,
        report: H::Report,
    ) -> FilterOutcome<H::Report> {
        handler.record(context, &report);
        if report.allowed() {
            FilterOutcome::Allowed(report)
        } else {
            FilterOutcome::Denied(report)
        }
    }
}
