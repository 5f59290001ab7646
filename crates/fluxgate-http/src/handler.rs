//! The handler that decides requests: a limiter in this process, or a remote service.

use std::future::Future;
use std::time::Duration;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::store::{Mode, WaitPermit};
use fluxgate_core::task::poll_once_or_spawn;
use fluxgate_core::{Charge, Decision, Limiter, PendingDecision, RequestContext, Store};

use crate::report::Report;
use crate::request_hold::RequestHold;

/// The names of the headers that rules read.
#[derive(Clone, Copy, Debug)]
pub enum HeaderNames<'r> {
    /// Rules may read any header, except for credentials and hop-by-hop headers. So any request
    /// is rejected with 400 that repeats a header with different values, unless the header is a
    /// list such as `Accept` or `Via`. Headers whose names servers may take for another
    /// (`x_tenant`) do not reach the inner service.
    All,
    /// Rules read these headers only. Names are in lower case.
    Only(&'r [Box<str>]),
}

impl HeaderNames<'_> {
    /// Returns whether this selection includes every header of the other.
    pub(crate) fn covers(self, other: HeaderNames<'_>) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Only(_), HeaderNames::All) => false,
            (Self::Only(known), HeaderNames::Only(others)) => {
                others.iter().all(|name| known.contains(name))
            }
        }
    }
}

/// Decides requests.
///
/// A handler always returns a report. If the store or the service fails, the handler applies
/// `on_error`, so a failure of the limiter never fails the request.
///
/// This one lets a switch decide, without rules:
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use fluxgate_core::store::{Mode, WaitPermit};
/// use fluxgate_core::{Decision, RequestContext};
/// use fluxgate_http::{Handler, HeaderNames};
///
/// #[derive(Clone, Default)]
/// struct Maintenance(Arc<AtomicBool>);
///
/// impl Handler for Maintenance {
///     type Report = Decision;
///     type Rules = ();
///     type Charge = ();
///     // It never has to be awaited.
///     type Pending = Infallible;
///
///     fn rules(&self, _: &str) {}
///
///     fn header_names<'r>(&'r self, (): &'r ()) -> HeaderNames<'r> {
///         HeaderNames::Only(&[])
///     }
///
///     fn try_decide(
///         &self,
///         _: &str,
///         (): &(),
///         _: &RequestContext<'_>,
///         _: Mode,
///     ) -> Result<Decision, Infallible> {
///         Ok(if self.0.load(Ordering::Relaxed) {
///             Decision::failed_closed()
///         } else {
///             Decision::failed_open()
///         })
///     }
///
///     async fn decide(
///         &self,
///         _: &str,
///         (): &(),
///         _: &RequestContext<'_>,
///         pending: Infallible,
///     ) -> (Decision, WaitPermit) {
///         match pending {}
///     }
///
///     fn charge(&self, _: &str, _: &RequestContext<'_>, _: &Decision) -> Option<()> {
///         None
///     }
///
///     fn cancel(&self, (): ()) {}
/// }
///
/// let maintenance = Maintenance::default();
/// maintenance.0.store(true, Ordering::Relaxed);
/// ```
pub trait Handler: Send + Sync {
    /// The report on a request.
    type Report: Report;

    /// A snapshot of a rule set: the context of a request is built and decided by the same
    /// rules.
    type Rules: Send + Sync;

    /// The units to cancel if a request that waits does not proceed.
    type Charge: Send;

    /// The prepared decision of a request for which the handler must be awaited.
    type Pending: Send + 'static;

    /// Returns the current rules of a rule set.
    fn rules(&self, rule_set: &str) -> Self::Rules;

    /// Returns the names of the headers that these rules read.
    fn header_names<'r>(&'r self, rules: &'r Self::Rules) -> HeaderNames<'r>;

    /// Returns whether these rules may delay a request. Such rules decide in [`Mode::Take`]
    /// only if the request has a permit to wait.
    fn may_wait(&self, rules: &Self::Rules) -> bool {
        let _ = rules;
        true
    }

    /// Returns the names, in lower case, of the headers whose values these rules use: in a key,
    /// as a cost or in a condition. A request is rejected with 400 if it repeats one of them with
    /// different values, or if servers may read its value in different ways.
    fn checked_header_names<'r>(&'r self, rules: &'r Self::Rules) -> &'r [Box<str>] {
        let _ = rules;
        &[]
    }

    /// Returns whether these rules may count a request by the client's address. If so, the layer
    /// warns of requests without one.
    fn counts_addresses(&self, rules: &Self::Rules) -> bool {
        let _ = rules;
        true
    }

    /// Decides a request and charges it if it is allowed. In [`Mode::TakeNow`] no rule delays
    /// it. If the handler must be awaited, returns the prepared decision for
    /// [`Handler::decide`] and charges nothing.
    fn try_decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Self::Report, Self::Pending>;

    /// Decides a request that [`Handler::try_decide`] has prepared, and charges it if it is
    /// allowed. A delayed request holds the returned permit among the waiters of all processes.
    fn decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        pending: Self::Pending,
    ) -> impl Future<Output = (Self::Report, WaitPermit)> + Send;

    /// Returns what a request that must wait was charged, if anything.
    fn charge(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        report: &Self::Report,
    ) -> Option<Self::Charge>;

    /// Cancels the charge of a request that does not proceed. It is called when a future is
    /// dropped, so it must not block.
    fn cancel(&self, charge: Self::Charge);

    /// Takes a permit among the waiters of all processes for at most `longest`. Returns `None`
    /// if none is free.
    fn begin_wait(&self, longest: Duration) -> impl Future<Output = Option<WaitPermit>> + Send {
        let _ = longest;
        std::future::ready(Some(WaitPermit::unbounded()))
    }

    /// Returns the hold of a request that proceeds, or that waits until it can, if it has one.
    /// It is kept until it is dropped.
    fn hold(&self, report: &Self::Report) -> Option<RequestHold> {
        let _ = report;
        None
    }

    /// Records the final report on a request. It is called once for each.
    fn record(&self, context: &RequestContext<'_>, report: &Self::Report) {
        let _ = (context, report);
    }

    /// Records that a request starts to wait.
    fn wait_began(&self) {}

    /// Records that a request no longer waits.
    fn wait_ended(&self) {}
}

impl<S: Store + 'static> Handler for Limiter<S> {
    type Report = Decision;
    /// `None` if there is no rule set of that name.
    type Rules = Option<ActiveRuleSet>;
    type Charge = Charge;
    type Pending = PendingDecision;

    fn rules(&self, rule_set: &str) -> Self::Rules {
        self.active_rule_set(rule_set)
    }

    fn header_names<'r>(&'r self, rules: &'r Self::Rules) -> HeaderNames<'r> {
        HeaderNames::Only(rules.as_ref().map_or(&[], |set| set.header_names()))
    }

    fn may_wait(&self, rules: &Self::Rules) -> bool {
        rules.as_ref().is_some_and(|rules| rules.delays())
    }

    fn checked_header_names<'r>(&'r self, rules: &'r Self::Rules) -> &'r [Box<str>] {
        rules.as_ref().map_or(&[], |set| set.checked_header_names())
    }

    fn counts_addresses(&self, rules: &Self::Rules) -> bool {
        rules.as_ref().is_some_and(|rules| rules.counts_addresses())
    }

    fn try_decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        match rules {
            Some(rules) => self.try_check(rules, context, mode),
            None => Ok(self.missing_rule_set(rule_set)),
        }
    }

    async fn decide(
        &self,
        _: &str,
        _: &Self::Rules,
        _: &RequestContext<'_>,
        pending: PendingDecision,
    ) -> (Decision, WaitPermit) {
        self.complete(pending).await
    }

    fn charge(&self, _: &str, context: &RequestContext<'_>, decision: &Decision) -> Option<Charge> {
        decision.charge(context)
    }

    fn cancel(&self, charge: Charge) {
        let limiter = self.clone();
        poll_once_or_spawn(async move {
            if let Err(error) = Limiter::cancel(&limiter, charge).await {
                tracing::warn!(%error, "cannot cancel the reservation of an abandoned request");
            }
        });
    }

    fn hold(&self, decision: &Decision) -> Option<RequestHold> {
        self.keep_hold(decision).map(RequestHold::new)
    }

    async fn begin_wait(&self, longest: Duration) -> Option<WaitPermit> {
        // If the store fails, only the bound of this process applies.
        let permit = Limiter::begin_wait(self, longest).await;
        permit.unwrap_or(Some(WaitPermit::unbounded()))
    }

    fn record(&self, _: &RequestContext<'_>, decision: &Decision) {
        self.observe_refused_wait(decision);
    }

    fn wait_began(&self) {
        self.observe_wait_began();
    }

    fn wait_ended(&self) {
        self.observe_wait_ended();
    }
}
