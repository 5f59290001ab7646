//! A limiter in this process as a handler.

use std::time::Duration;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::store::{Mode, WaitPermit};
use fluxgate_core::task::poll_once_or_spawn;
use fluxgate_core::{Charge, Decision, Limiter, PendingDecision, RequestContext, Store};

use super::{Handler, HeaderNames};
use crate::request_hold::RequestHold;

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
