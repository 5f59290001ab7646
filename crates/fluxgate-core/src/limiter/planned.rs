//! Decisions in two steps, for callers that avoid a future where the store answers at once,
//! and rules that are replaced in two steps.

use std::sync::Arc;
use std::time::Duration;

use super::Limiter;
use crate::algorithm::Mode;
use crate::context::RequestContext;
use crate::decision::{Charge, Decision};
use crate::hold::Settlement;
use crate::observer::Stopwatch;
use crate::plan::Plan;
use crate::rules::{ActiveRuleSet, OnError, RuleSets};
use crate::store::{ReservedCharge, Store, StoreError, Verdicts, WaitPermit};

/// A request that is planned but must wait for the store.
#[derive(Debug)]
pub struct PendingDecision {
    set: ActiveRuleSet,
    plan: Box<Plan>,
    started: Option<Stopwatch>,
}

impl<S: Store> Limiter<S> {
    /// Returns the decision on limits that come with the call when the store fails.
    pub fn call_limits_on_error(&self) -> OnError {
        self.0.call_limits
    }

    /// Returns the active rule set of this name.
    pub fn rule_set(&self, name: &str) -> Option<ActiveRuleSet> {
        self.0.rules.load().get(name).map(ActiveRuleSet::of)
    }

    /// Returns the decision on a rule set that does not exist.
    pub fn missing_rule_set(&self, name: &str) -> Decision {
        self.without_rule_set(name, &self.0.rules.load())
    }

    /// Replaces all rules atomically and returns the old ones. Their state is not deleted
    /// before [`Limiter::reset_replaced`].
    pub fn swap_rules(&self, rules: RuleSets) -> Arc<RuleSets> {
        self.0.rules.swap(Arc::new(rules))
    }

    /// Deletes the state of replaced rules that reset on change, unless they are active
    /// again. Continues after a failure and returns the first one.
    pub async fn reset_replaced(&self, replaced: &RuleSets) -> Result<(), StoreError> {
        let mut first = Ok(());
        for set in replaced.iter() {
            for rule in set.rules().iter().filter(|rule| rule.reset_on_change()) {
                // The rules may have changed while the last reset ran.
                let rules = self.rules();
                let now = rules.get(set.name()).and_then(|set| set.rule(rule.id()));
                // The number of a rule that resets on change depends on its text.
                if now.is_none_or(|now| now.number() != rule.number()) {
                    let reset = self.0.store.reset_rule(rule.subject()).await;
                    first = first.and(reset.map(drop));
                }
            }
        }
        first
    }

    /// Decides a request by a rule set that is active or was when the request came, and
    /// charges it if it passes. Returns what is planned, and charges nothing, if the store
    /// must be awaited: [`Limiter::complete`] continues then.
    pub fn try_check(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        self.try_check_owned(set.clone(), context, mode)
    }

    pub(super) fn try_check_owned(
        &self,
        set: ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        let started = self.start_timing().filter(|_| mode.takes());
        let mut plan = Plan::new(mode);
        plan.fill(&set, context, &|| self.0.store.time());
        let mut verdicts = Verdicts::new();
        let is_decided = {
            let checks = plan.checks(&set);
            checks.list().is_empty() || self.0.store.try_decide(&checks, &mut verdicts)
        };
        if is_decided {
            let mut decision = Decision::combine(&plan, &verdicts);
            decision.set_rule_set(set);
            self.observe(&decision, started);
            return Ok(decision);
        }
        let plan = Box::new(plan);
        Err(PendingDecision { set, plan, started })
    }

    /// Decides a planned request, and charges it if it passes. A request that has to wait
    /// gets a permit, if their number is bounded for all processes. The permit is acquired
    /// before any units are; if none is left, the request is decided as if no rule let it
    /// wait.
    pub async fn complete(&self, pending: PendingDecision) -> (Decision, WaitPermit) {
        let PendingDecision { set, plan, started } = pending;
        let (mut decision, permit) = {
            let checks = plan.checks(&set);
            let (verdicts, permit) = match self.0.store.decide_with_permit(&checks).await {
                Ok((verdicts, permit)) => (Ok(verdicts), permit),
                Err(error) => (Err(error), WaitPermit::unbounded()),
            };
            (self.conclude(&set, &plan, &checks, verdicts), permit)
        };
        decision.set_rule_set(set);
        self.observe(&decision, started);
        (decision, permit)
    }

    /// Decides like [`Limiter::complete`], for a caller that does not wait itself.
    pub(super) async fn complete_without_permit(&self, pending: PendingDecision) -> Decision {
        let PendingDecision { set, plan, started } = pending;
        let mut decision = {
            let checks = plan.checks(&set);
            let verdicts = self.0.store.decide(&checks).await;
            self.conclude(&set, &plan, &checks, verdicts)
        };
        decision.set_rule_set(set);
        self.observe(&decision, started);
        decision
    }

    /// Decides like [`Limiter::try_check`] and, if the store must be awaited, like
    /// [`Limiter::complete`].
    pub async fn check_with_permit(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> (Decision, WaitPermit) {
        match self.try_check(set, context, mode) {
            Ok(decision) => (decision, WaitPermit::unbounded()),
            Err(pending) => self.complete(pending).await,
        }
    }

    /// Cancels the charge of a request that waits and does not go on. Continues after a
    /// failure and returns the first one. A hold ends first, which only one caller can do: if it
    /// has been settled, or cannot be reached, nothing returns.
    pub async fn cancel(&self, charge: Charge) -> Result<(), StoreError> {
        if let Some(hold) = charge.hold()
            && self.settle(hold, Settlement::Cancelled).await?.is_none()
        {
            return Ok(());
        }
        let mut first = Ok(());
        for part in charge.iter() {
            let ReservedCharge {
                subject,
                bands,
                units,
                charged,
            } = part;
            let cancelled = if charge.by_fallback() {
                match self.0.fallback.get() {
                    Some(fallback) => fallback.cancel(subject, bands, units, charged).await,
                    // A fallback that was never created holds nothing.
                    None => continue,
                }
            } else {
                self.0.store.cancel(subject, bands, units, charged).await
            };
            first = first.and(cancelled);
        }
        first
    }

    /// Acquires a permit to wait for at most `longest`. Returns `None` if the number of
    /// waiting requests is bounded for all processes that share the state, and reached.
    pub async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPermit>, StoreError> {
        self.0.store.begin_wait(longest).await
    }
}
