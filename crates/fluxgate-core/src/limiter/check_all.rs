//! Several requests that are charged together or not at all.

use std::ops::Range;

use super::{FallbackDecision, Limiter};
use crate::ad_hoc::{AdHocCheck, AdHocDecision};
use crate::algorithm::Mode;
use crate::context::RequestContext;
use crate::decision::{Decision, Outcome};
use crate::plan::{Action, Ends, Plan};
use crate::rules::{ActiveRuleSet, RuleSet};
use crate::store::{Checks, Store, StoreError, Verdicts};

impl<S: Store> Limiter<S> {
    /// Decides several requests by rules, and others by limits that come with the call. All of them
    /// are charged together, or none is. If a rule forbids one, nothing of the others is decided.
    pub async fn check_all_with(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
        own: &[AdHocCheck],
    ) -> (Vec<Decision>, Vec<AdHocDecision>) {
        if let Some(set) = self.active_rule_set(rule_set) {
            return self.decide_all(&set, contexts, own, Mode::Take).await;
        }
        // A call in which every request has a limit of its own needs no rules.
        let missing = (!contexts.is_empty()).then(|| self.missing_rule_set(rule_set));
        let pass = missing.as_ref().is_none_or(Decision::allowed);
        let own = self.decide_own(own, pass).await;
        let missing = missing.into_iter().cycle().take(contexts.len());
        (missing.collect(), own)
    }

    /// Decides several requests like [`Limiter::check_all`], by a rule set that is active or was
    /// when the requests came, in any mode.
    pub async fn check_all_in_mode(
        &self,
        set: &ActiveRuleSet,
        contexts: &[RequestContext<'_>],
        mode: Mode,
    ) -> Vec<Decision> {
        self.decide_all(set, contexts, &[], mode).await.0
    }

    async fn decide_all(
        &self,
        set: &ActiveRuleSet,
        contexts: &[RequestContext<'_>],
        own: &[AdHocCheck],
        mode: Mode,
    ) -> (Vec<Decision>, Vec<AdHocDecision>) {
        let started = self.0.observers.start_timing().filter(|_| mode.takes());
        let mut plan = Plan::new(mode);
        let ends = plan.fill_all(set, contexts, &|| self.0.store.time());
        let mut checks = plan.checks(set);
        let own = OwnChecks::add_to(&mut checks, own, is_forbidden(&plan, contexts.len()));
        let verdicts = self.verdicts(&checks).await;
        let (mut decisions, own) =
            self.conclude_all(set, (&plan, &ends), (&checks, &own), verdicts);
        for decision in &mut decisions {
            decision.set_rule_set(set.clone());
            self.0.observers.decided(decision, started);
            if mode == Mode::TakeNow {
                decision.set_wait_not_requested();
            }
            if mode.takes() {
                self.observe_refused_wait(decision);
            }
        }
        (decisions, own)
    }

    /// Decides requests by their own limits only, and charges them if all others pass.
    async fn decide_own(&self, own: &[AdHocCheck], others_pass: bool) -> Vec<AdHocDecision> {
        let mode = if others_pass { Mode::Take } else { Mode::Peek };
        let mut checks = Checks::new(mode);
        let own = OwnChecks::add_to(&mut checks, own, false);
        match self.decide_or_fall_back(&checks, self.0.call_limits).await {
            Ok(mut verdicts) => own.decisions(&mut verdicts),
            Err(FallbackDecision::Local(mut verdicts)) => own.fallback_decisions(&mut verdicts),
            Err(FallbackDecision::Fixed(decision)) => own.fixed_decisions(&decision),
        }
    }

    /// Makes the decisions on several requests, like [`Limiter::conclude`].
    fn conclude_all(
        &self,
        set: &RuleSet,
        (plan, ends): (&Plan, &(Ends, Ends)),
        (checks, own): (&Checks<'_>, &OwnChecks<'_>),
        verdicts: Result<Verdicts, StoreError>,
    ) -> (Vec<Decision>, Vec<AdHocDecision>) {
        let pass = |own: &[AdHocDecision]| own.iter().all(|decision| decision.allowed);
        let error = match verdicts {
            Ok(mut verdicts) => {
                let own = own.decisions(&mut verdicts);
                let decisions = Decision::combine_all(plan, ends, &verdicts, pass(&own));
                return (decisions, own);
            }
            Err(error) => error,
        };
        let (mut decisions, own) = match self.fall_back(set.on_error(), checks, &error) {
            FallbackDecision::Fixed(decision) => {
                let own = own.fixed_decisions(&decision);
                (vec![decision; ends.0.len()], own)
            }
            FallbackDecision::Local(mut verdicts) => {
                let own = own.fallback_decisions(&mut verdicts);
                let decisions = Decision::combine_all(plan, ends, &verdicts, pass(&own));
                let decisions = decisions.into_iter().map(Decision::into_fallback);
                (decisions.collect(), own)
            }
        };
        // A request that a rule decides by itself needs no store.
        for (request, decision) in decisions.iter_mut().enumerate() {
            if let Some(action) = plan.action(request) {
                *decision = Decision::by_action(action);
            }
        }
        (decisions, own)
    }
}

fn is_forbidden(plan: &Plan, requests: usize) -> bool {
    let mut actions = (0..requests).map(|request| plan.action(request));
    actions.any(|action| matches!(action, Some(Action::Deny(_))))
}

/// The checks of limits that come with the call, among those of rules.
struct OwnChecks<'a> {
    list: &'a [AdHocCheck],
    /// Their indices in the list of checks. Limits that allow nothing have none.
    range: Range<usize>,
    /// Whether they are not decided.
    is_forbidden: bool,
}

impl<'a> OwnChecks<'a> {
    /// Adds the checks, unless a rule forbids the call.
    fn add_to(checks: &mut Checks<'a>, list: &'a [AdHocCheck], is_forbidden: bool) -> Self {
        let mut own = Self {
            list,
            range: 0..0,
            is_forbidden,
        };
        let mut first = None;
        for check in list.iter().filter(|_| !is_forbidden) {
            if let Some(band) = &check.band {
                let index = checks.push_enforced(check.key.as_subject(), band, check.cost);
                own.range = *first.get_or_insert(index)..index + 1;
            } else if check.cost > 0 {
                checks.refuse();
            }
        }
        own
    }

    /// Takes the verdicts on these checks, and returns the decision on each.
    fn decisions(&self, verdicts: &mut Verdicts) -> Vec<AdHocDecision> {
        let own = verdicts.split_off(self.range.clone());
        let mut own = own.iter();
        let decisions = self.list.iter().map(|check| match check {
            _ if self.is_forbidden => AdHocDecision::UNDECIDED,
            AdHocCheck {
                band: None,
                cost: 0,
                ..
            } => AdHocDecision::NOTHING_ASKED,
            AdHocCheck { band: None, .. } => AdHocDecision::new(None),
            AdHocCheck { band: Some(_), .. } => AdHocDecision::new(own.next()),
        });
        decisions.collect()
    }

    /// Returns the decisions of the embedded store.
    fn fallback_decisions(&self, verdicts: &mut Verdicts) -> Vec<AdHocDecision> {
        let mut decisions = self.decisions(verdicts);
        for decision in decisions.iter_mut().filter(|_| !self.is_forbidden) {
            decision.outcome = Outcome::Fallback;
        }
        decisions
    }

    /// Returns the decisions without a store.
    fn fixed_decisions(&self, decision: &Decision) -> Vec<AdHocDecision> {
        vec![AdHocDecision::without_state(decision); self.list.len()]
    }
}
