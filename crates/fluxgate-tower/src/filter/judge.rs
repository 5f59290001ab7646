//! From a request to how it fares, step by step.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use fluxgate_core::{RequestContext, RequestContextBuilder, RequestPath, WaitPermit};
use tokio::time::Instant;

use super::Filter;
use crate::bad_request::BadRequest;
use crate::context::{self, WantedHeaders};
use crate::handler::Handler;
use crate::head::Head;
use crate::ruling::Ruling;

mod waiting;

pub(crate) use waiting::{Waiter, must_wait};

/// How a request fares.
#[derive(Clone, Debug)]
#[must_use]
pub enum Judgement<R> {
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

/// A request of which it is not known yet how it fares. If it has reserved
/// something, that is given back when this is dropped.
#[must_use]
pub struct Unsettled<'h, H: Handler> {
    /// The rules that it was read for.
    rules: H::Rules,
    /// The first answer, if there is one already: it has to wait.
    first: Option<Waiter<&'h H>>,
}

impl<H: Handler> std::fmt::Debug for Unsettled<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waits = self.first.is_some();
        let mut shown = f.debug_struct("Unsettled");
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
    pub async fn judge<H: Handler>(
        &self,
        handler: &H,
        head: &(impl Head + Sync),
        path: &RequestPath<'_>,
        peer: Option<IpAddr>,
    ) -> Judgement<H::Ruling> {
        match self.judge_at_once(handler, head, path, peer) {
            Ok(judgement) => judgement,
            Err(unsettled) => self.judge_on(handler, head, path, peer, unsettled).await,
        }
    }

    /// The same, where nobody must be waited for. Else [`Filter::judge_on`] goes
    /// on from where this ends.
    pub fn judge_at_once<'h, H: Handler>(
        &self,
        handler: &'h H,
        head: &impl Head,
        path: &RequestPath<'_>,
        peer: Option<IpAddr>,
    ) -> Result<Judgement<H::Ruling>, Unsettled<'h, H>> {
        let Some(rule_set) = self.rule_set_for(path) else {
            return Ok(Judgement::Untouched);
        };
        let rules = handler.rules(rule_set);
        let context = match self.context(handler, &rules, (head, path), peer, &()) {
            Ok(context) => context,
            Err(bad) => return Ok(Judgement::Bad(bad)),
        };
        let (mode, here) = self.place(handler, &rules);
        let first = match handler.try_decide(rule_set, &rules, &context, mode) {
            None => None,
            Some(ruling) => match Self::settled_at_once(handler, &context, ruling) {
                Ok(judgement) => return Ok(judgement),
                Err(ruling) => {
                    let places = (here, WaitPermit::unbounded());
                    let now = Instant::now();
                    let waiter = Waiter::new(handler, rule_set, &context, ruling, now, places);
                    Some(waiter)
                }
            },
        };
        drop(context);
        Err(Unsettled { rules, first })
    }

    /// How a request fares that could not be settled at once.
    pub async fn judge_on<H: Handler>(
        &self,
        handler: &H,
        head: &(impl Head + Sync),
        path: &RequestPath<'_>,
        peer: Option<IpAddr>,
        unsettled: Unsettled<'_, H>,
    ) -> Judgement<H::Ruling> {
        let Unsettled { rules, first } = unsettled;
        let context = match self.context(handler, &rules, (head, path), peer, &()) {
            Ok(context) => context,
            Err(bad) => return Judgement::Bad(bad),
        };
        // What has to wait for somebody is large; who need not is not to be.
        Box::pin(self.judge_later(handler, &rules, &context, first)).await
    }

    /// How a request fares of which nothing more than perhaps the first answer is
    /// known yet.
    pub(crate) async fn judge_later<H: Handler, P: Deref<Target = H>>(
        &self,
        handler: &H,
        rules: &H::Rules,
        context: &RequestContext<'_>,
        first: Option<Waiter<P>>,
    ) -> Judgement<H::Ruling> {
        let rule_set = self.rule_set.as_deref().unwrap_or_default();
        if let Some(waiter) = first {
            return self.wait(handler, rule_set, rules, context, waiter).await;
        }
        let asked = Instant::now();
        let (ruling, places) = self.decide(handler, rule_set, rules, context).await;
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
    pub(crate) fn context<'a, H: Handler, D: Head>(
        &self,
        handler: &'a H,
        rules: &'a H::Rules,
        (head, path): (&'a D, &'a RequestPath<'_>),
        peer: Option<IpAddr>,
        customize: &impl Customize<D>,
    ) -> Result<RequestContext<'a>, BadRequest> {
        let (proxies, source) = (&self.trusted_proxies, &self.client_ip);
        let ip = match self.trusts_peer {
            true => proxies.client_behind_peer(source, head),
            false => proxies.client_of(peer, source, head),
        };
        let wanted = WantedHeaders {
            wanted: handler.wanted_headers(rules),
            keys: handler.key_headers(rules),
        };
        let context = context::of_head(head, path, ip, &self.identity, wanted)?;
        Ok(customize.customize(context, head).build())
    }

    /// How a request fares that need not wait; of one that must, the answer.
    fn settled_at_once<H: Handler>(
        handler: &H,
        context: &RequestContext<'_>,
        ruling: H::Ruling,
    ) -> Result<Judgement<H::Ruling>, H::Ruling> {
        if must_wait(&ruling) {
            return Err(ruling);
        }
        Ok(Self::settle(handler, context, ruling))
    }

    fn settle<H: Handler>(
        handler: &H,
        context: &RequestContext<'_>,
        ruling: H::Ruling,
    ) -> Judgement<H::Ruling> {
        handler.settled(context, &ruling);
        match ruling.allowed() {
            true => Judgement::Passed(ruling),
            false => Judgement::Refused(ruling),
        }
    }
}
