//! From the verdicts of all bands to one decision.

use std::slice;

use super::outcome::Outcome;
use super::{BandRef, BandReservation, DecidedRule, Decision, DecisionHold};
use crate::algorithm::{Charged, Verdict};
use crate::plan::{Action, AppliedRule, Ends, Plan};
use crate::time::{Micros, Retry};

impl Decision {
    /// Combines the verdicts on a plan. The rule set is set later, by
    /// [`Decision::set_rule_set`].
    pub(crate) fn combine(plan: &Plan, verdicts: &[Verdict]) -> Self {
        if plan.applied.is_empty() {
            return plan.action(0).map_or_else(Self::no_rule, Self::by_action);
        }
        let mut decision = Self::without_rule(true, Outcome::Allowed, Retry::NOW);
        let all = verdicts;
        let mut verdicts = all.iter();
        for applied in plan.applied.iter().filter(|applied| !applied.is_shadow()) {
            decision.add_enforced(applied, &mut verdicts);
        }
        if plan.tells_levels {
            decision.add_levels(all);
        }
        if plan.reports_uses {
            decision.add_uses(plan, &plan.applied, all);
        }
        if !decision.allowed {
            return decision;
        }
        for applied in plan.applied.iter().filter(|applied| applied.is_shadow()) {
            decision.add_shadow(applied, &mut verdicts);
        }
        if plan.takes() {
            decision.add_reservations(all);
        }
        decision.add_hold(plan, &plan.applied);
        decision
    }

    /// Combines the verdicts on a plan of several requests, for each of them. The ends are
    /// those that [`Plan::fill_all`] returned. `others_pass` says whether all other requests pass
    /// that are charged together with these.
    pub(crate) fn combine_all(
        plan: &Plan,
        (enforced, shadow): &(Ends, Ends),
        verdicts: &[Verdict],
        others_pass: bool,
    ) -> Vec<Self> {
        let all_verdicts = verdicts;
        let mut verdicts = all_verdicts.iter();
        let mut start = 0;
        let mut decisions = Vec::with_capacity(enforced.len());
        for (request, &end) in enforced.iter().enumerate() {
            if let Some(action) = plan.action(request) {
                decisions.push(Self::by_action(action));
                continue;
            }
            let mut decision = Self::without_rule(true, Outcome::Allowed, Retry::NOW);
            let of_this = verdicts.as_slice();
            for applied in &plan.applied[start..end] {
                decision.add_enforced(applied, &mut verdicts);
            }
            if plan.takes() {
                decision.add_reservations(of_this);
            }
            decision.add_hold(plan, &plan.applied[start..end]);
            start = end;
            decisions.push(decision);
        }
        let all_allowed = others_pass && decisions.iter().all(|decision| decision.allowed);
        if plan.reports_uses {
            Self::add_uses_of_all(&mut decisions, plan, enforced, all_verdicts);
        }
        if plan.applied.is_empty() {
            // Where one is forbidden, nothing of the others is decided.
            let undecided = { decisions.iter_mut() }.filter(|decision| decision.rules.is_empty());
            undecided.for_each(|decision| decision.outcome = Outcome::NoRule);
            return decisions;
        }
        for (decision, &end) in decisions.iter_mut().zip(shadow) {
            let shadow = &plan.applied[start..end];
            start = end;
            if decision.rules.is_empty() && shadow.is_empty() {
                decision.outcome = Outcome::NoRule;
            }
            if all_allowed {
                for applied in shadow {
                    decision.add_shadow(applied, &mut verdicts);
                }
                decision.add_hold(plan, shadow);
            } else {
                // Nothing was charged.
                decision.is_uncharged = decision.allowed;
                decision.hold = None;
                decision.reservations = Vec::new();
            }
        }
        decisions
    }

    /// Creates the decision of a rule that decides by itself.
    pub(crate) fn by_action(action: Action) -> Self {
        let (rule, denies) = match action {
            Action::Deny(rule) => (rule, true),
            Action::Allow(rule) => (rule, false),
        };
        let band = BandRef { rule, band: None };
        let mut decision = if denies {
            Self::without_rule(false, Outcome::Forbidden, Retry::Never)
        } else {
            Self::without_rule(true, Outcome::Exempt, Retry::NOW)
        };
        decision.reported = Some(band);
        decision.rules.push(DecidedRule {
            rule,
            bands: 0..0,
            is_shadow: false,
            denies,
            is_never: denies,
        });
        if denies {
            decision.remaining = Some(0);
            decision.violated.push(band);
        }
        decision
    }

    /// Keeps the verdicts on a request that has to wait, which may have to be cancelled.
    /// They start with those of the decided rules.
    fn add_reservations(&mut self, verdicts: &[Verdict]) {
        if self.delay == Micros::ZERO {
            return;
        }
        let reservations =
            self.decided_bands()
                .zip(verdicts)
                .map(|(band, verdict)| BandReservation {
                    band,
                    at: verdict.at,
                    delay: verdict.delay,
                    reset_after: verdict.reset_after,
                    charged: Charged::by(verdict),
                });
        self.reservations = reservations.collect();
    }

    /// Keeps what the enforced bands have left. Their verdicts come first.
    fn add_levels(&mut self, verdicts: &[Verdict]) {
        let levels = self.decided_bands().zip(verdicts);
        let levels =
            levels.map(|(band, verdict)| (band, u64::from(verdict.remaining), verdict.reset_after));
        self.levels = levels.collect();
    }

    /// Returns the bands that the rules checked, in the order of their verdicts.
    fn decided_bands(&self) -> impl Iterator<Item = BandRef> {
        self.rules.iter().flat_map(|decided| {
            let (rule, bands) = (decided.rule, decided.bands.clone());
            bands.map(Some).map(move |band| BandRef { rule, band })
        })
    }

    /// Adds the hold of the plan, if some of these rules have charged the request.
    fn add_hold(&mut self, plan: &Plan, rules: &[AppliedRule]) {
        let Some((id, requested)) = plan.hold.filter(|_| self.allowed) else {
            return;
        };
        let denies = |rule: u32| {
            let mut decided = self.rules.iter();
            decided.any(|decided| decided.rule == rule && decided.denies)
        };
        let is_charged = |applied: &AppliedRule| applied.cost > 0 && !denies(applied.rule);
        if rules.iter().any(is_charged) {
            self.hold = Some(DecisionHold { id, requested });
        }
    }

    fn add_enforced(&mut self, applied: &AppliedRule, verdicts: &mut slice::Iter<'_, Verdict>) {
        let before = self.violated.len();
        let mut is_never = applied.bands.is_empty();
        if is_never {
            self.add_band(applied.rule, None, &Verdict::NEVER);
        }
        for (band, verdict) in applied.bands.clone().zip(verdicts) {
            self.add_band(applied.rule, Some(band), verdict);
            is_never |= verdict.retry_after == Retry::Never;
        }
        self.rules.push(DecidedRule {
            rule: applied.rule,
            bands: applied.bands.clone(),
            is_shadow: false,
            denies: self.violated.len() > before,
            is_never,
        });
    }

    fn add_band(&mut self, rule: u32, band: Option<u32>, verdict: &Verdict) {
        let band = BandRef { rule, band };
        // On a tie, the first is reported, so only a strictly better one replaces it.
        let better = if verdict.passes() {
            if verdict.delay > self.delay {
                self.delay = verdict.delay;
            }
            self.allowed
                && self
                    .remaining
                    .is_none_or(|least| u64::from(verdict.remaining) < least)
        } else {
            self.violated.push(band);
            let first = self.allowed;
            self.allowed = false;
            first || verdict.retry_after > self.retry_after
        };
        if better {
            self.reported = Some(band);
            self.remaining = Some(verdict.remaining.into());
            self.retry_after = verdict.retry_after;
            self.at = verdict.at;
            self.reset_after = verdict.reset_after;
        }
        if !self.allowed {
            self.delay = Micros::ZERO;
            self.outcome = match self.retry_after {
                Retry::Never => Outcome::Never,
                Retry::After(_) => Outcome::Denied,
            };
        }
    }

    fn add_shadow(&mut self, applied: &AppliedRule, verdicts: &mut slice::Iter<'_, Verdict>) {
        let before = self.violated.len();
        let rule = applied.rule;
        if applied.bands.is_empty() {
            self.violated.push(BandRef { rule, band: None });
        }
        for (band, verdict) in applied.bands.clone().zip(verdicts) {
            if !verdict.passes() {
                let band = Some(band);
                self.violated.push(BandRef { rule, band });
            }
        }
        let denies = self.violated.len() > before;
        if denies {
            self.outcome = Outcome::ShadowDenied;
        }
        self.rules.push(DecidedRule {
            rule,
            bands: applied.bands.clone(),
            is_shadow: true,
            denies,
            is_never: false,
        });
    }
}
