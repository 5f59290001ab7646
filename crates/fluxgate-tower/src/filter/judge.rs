//! From a request to how it fares, step by step.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use fluxgate_core::{Mode, RequestContext, RequestContextBuilder, RequestPath, WaitPermit};
use tokio::time::Instant;

use super::Filter;
use crate::bad_request::BadRequest;
use crate::context::{self, WantedHeaders};
use crate::handler::Handler;
use crate::head::RequestHead;
use crate::ruling::Report;
use crate::wait::LocalPlace;

mod waiting;

pub(crate) use waiting::{Waiter, must_wait};

/// How a request fares.
#[derive(Clone, Debug)]
#[must_use]
pub enum FilterOutcome<R> {
    /// It goes on, and nothing is told: it is not this filter's business.
    Untouched,
    /// It goes on, having waited if it had to.
    Passed(R),
    /// It is answered with 429, or, if it failed closed, as
    /// [`Filter::failed_closed_status`] says.
    Refused(R),
    /// It is answered with 400, and nothing is charged.
    Bad(BadRequest),
}

/// A request that must wait, or whose handler must be awaited. A reservation is cancelled
/// when this is dropped.
#[must_use]
pub struct PendingEvaluation<'a, H: Handler> {
    rules: &'a H::Rules,
    context: RequestContext<'a>,
    next: Next<&'a H>,
}

/// What is left to do for a request.
pub(crate) enum Next<P>
where
    P: Deref<Target: Handler>,
{
    /// The handler must be awaited.
    Decide(Undecided<P::Target>),
    /// The request must wait.
    Wait(Waiter<P>),
}

/// A request for which the handler must be awaited.
pub(crate) struct Undecided<H: Handler + ?Sized> {
    pub(crate) pending: H::Pending,
    pub(crate) mode: Mode,
    /// The place in this process; `None` if there is none.
    pub(crate) here: Option<LocalPlace>,
}

impl<H: Handler> std::fmt::Debug for PendingEvaluation<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waits = matches!(self.next, Next::Wait(_));
        let mut shown = f.debug_struct("PendingEvaluation");
        shown.field("waits", &waits).finish_non_exhaustive()
    }
}

/// May change what is known of a request, before it is decided.
pub trait Customize<D> {
    /// What is known then.
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        head: &'a D,
    ) -> RequestContextBuilder<'a>;
}

/// Leaves everything as it is.
impl<D> Customize<D> for () {
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        _: &'a D,
    ) -> RequestContextBuilder<'a> {
        context
    }
}

impl Filter {
    /// How a request fares: all steps but that of forwarding it. Its path is given in both
    /// its forms ([`RequestPath::read`]). It waits where it has to; if that is broken off
    /// (the future is dropped), units and place are given back.
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
            Ok(judgement) => judgement,
            // The future is large, and most requests do not need it.
            Err(unsettled) => Box::pin(self.evaluate_pending(handler, unsettled)).await,
        }
    }

    /// The rules to decide requests for this path by, unless they are none of this
    /// filter's business.
    pub fn rules_for<H: Handler>(&self, handler: &H, path: &RequestPath<'_>) -> Option<H::Rules> {
        let rule_set = self.rule_set_for(path)?;
        Some(handler.rules(rule_set))
    }

    /// Like [`Filter::judge`], by these rules and without waiting. If the request or the
    /// handler must be waited for, [`Filter::evaluate_pending`] continues.
    #[expect(
        clippy::result_large_err,
        reason = "it is moved once, into the future that continues"
    )]
    pub fn try_evaluate<'a, H: Handler>(
        &self,
        handler: &'a H,
        rules: &'a H::Rules,
        head: &'a impl RequestHead,
        path: &'a RequestPath<'_>,
        peer: Option<IpAddr>,
    ) -> Result<FilterOutcome<H::Report>, PendingEvaluation<'a, H>> {
        let rule_set = self.rule_set.as_deref().unwrap_or_default();
        let context = match self.context(handler, rules, (head, path), peer, &()) {
            Ok(context) => context,
            Err(bad) => return Ok(FilterOutcome::BadRequest(bad)),
        };
        let (mode, here) = self.place(handler, rules);
        let next = match handler.try_decide(rule_set, rules, &context, mode) {
            Err(pending) => Next::Decide(Undecided {
                pending,
                mode,
                here,
            }),
            Ok(ruling) => match Self::settled_at_once(handler, &context, ruling) {
                Ok(judgement) => return Ok(judgement),
                Err(ruling) => {
                    let places = (here, WaitPermit::unbounded());
                    let now = Instant::now();
                    let waiter = Waiter::new(handler, rule_set, &context, ruling, now, places);
                    Next::Wait(waiter)
                }
            },
        };
        Err(PendingEvaluation {
            rules,
            context,
            next,
        })
    }

    /// How a request fares that could not be settled at once.
    pub async fn evaluate_pending<H: Handler>(
        &self,
        handler: &H,
        unsettled: PendingEvaluation<'_, H>,
    ) -> FilterOutcome<H::Report> {
        let PendingEvaluation {
            rules,
            context,
            next,
        } = unsettled;
        self.judge_later(handler, rules, &context, next).await
    }

    /// How a request fares for which this is left to do.
    pub(crate) async fn judge_later<H: Handler, P: Deref<Target = H>>(
        &self,
        handler: &H,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        next: Next<P>,
    ) -> FilterOutcome<H::Report> {
        let rule_set = self.rule_set.as_deref().unwrap_or_default();
        let undecided = match next {
            Next::Wait(waiter) => {
                return self.wait(handler, rule_set, rules, context, waiter).await;
            }
            Next::Decide(undecided) => undecided,
        };
        let asked = Instant::now();
        let decided = self.decide(handler, rule_set, rules, context, undecided);
        let (ruling, places) = decided.await;
        match Self::settled_at_once(handler, context, ruling) {
            Ok(judgement) => judgement,
            Err(ruling) => {
                let waiter = Waiter::new(handler, rule_set, context, ruling, asked, places);
                self.wait(handler, rule_set, rules, context, waiter).await
            }
        }
    }

    /// Steps 1 to 3: the rule set to ask about requests for this path, unless
    /// they are none of this filter's business.
    pub fn rule_set_for(&self, path: &RequestPath<'_>) -> Option<&str> {
        if self.exclude.contains_both(path) {
            return None;
        }
        let included = match &self.include {
            Some(include) => include.contains_either(path),
            None => path.raw().starts_with('/'),
        };
        if !included {
            return None;
        }
        if self.rule_set.is_none() && !self.told_of_none.swap(true, Ordering::Relaxed) {
            tracing::warn!("a filter has no rule set: everything passes");
        }
        self.rule_set.as_deref()
    }

    /// Steps 4 and 5: what is known of a request, unless that can be read in two ways.
    pub(crate) fn context<'a, H: Handler, D: RequestHead>(
        &self,
        handler: &'a H,
        rules: &'a H::Rules,
        (head, path): (&'a D, &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        customize: &impl Customize<D>,
    ) -> Result<RequestContext<'a>, BadRequest> {
        let (proxies, source) = (&self.trusted_proxies, &self.client_ip);
        let ip = match self.trusts_peer {
            true => proxies.forwarded_client_ip(source, head),
            false => proxies.client_ip(peer, source, head),
        };
        let wanted = WantedHeaders {
            wanted: handler.header_names(rules),
            keys: handler.key_header_names(rules),
        };
        let context = context::of_head(head, path, ip, &self.identity, wanted)?;
        Ok(customize.customize(context, head).build())
    }

    /// How a request fares that need not wait; of one that must, the answer.
    fn settled_at_once<H: Handler>(
        handler: &H,
        context: &RequestContext<'_>,
        ruling: H::Report,
    ) -> Result<FilterOutcome<H::Report>, H::Report> {
        if must_wait(&ruling) {
            return Err(ruling);
        }
        Ok(Self::settle(handler, context, ruling))
    }

    fn settle<H: Handler>(
        handler: &H,
        context: &RequestContext<'_>,
        ruling: H::Report,
    ) -> FilterOutcome<H::Report> {
        handler.record(context, &ruling);
        match ruling.allowed() {
            true => FilterOutcome::Allowed(ruling),
            false => FilterOutcome::Denied(ruling),
        }
    }
}
