//! Decisions at any instant, for simulations.

use super::{Limiter, Shared};
use crate::algorithm::Mode;
use crate::clock::Clock;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::hold::{HoldId, Settled, Settlement};
use crate::memory::MemoryStore;
use crate::plan::Plan;
use crate::rules::{ActiveRule, ActiveRuleSet};
use crate::time::{Micros, Timestamp};

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Settles a hold at the instant `now`, whatever the store's clock shows.
    pub fn settle_at(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Option<Settled> {
        self.0.store.settle_at(hold, settlement, now)
    }

    /// Decides a request at the instant `now`, whatever the store's clock shows.
    pub fn check_at(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        now: Timestamp,
    ) -> Decision {
        self.check_at_reporting(rule_set, context, now, |_| {})
    }

    /// Decides like [`Limiter::check_at`], and calls `report` for every rule that was
    /// decided.
    pub fn check_at_reporting(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        now: Timestamp,
        mut report: impl FnMut(RuleVerdict<'_>),
    ) -> Decision {
        let rules = self.0.rules.load();
        let Some(set) = rules.get(rule_set) else {
            // Simulations report these themselves.
            let Shared {
                missing, observers, ..
            } = &*self.0;
            return missing.decide(rule_set, &rules, observers, true);
        };
        let mut plan = Plan::new(Mode::Take);
        plan.fill(set, context, &|| now);
        let verdicts = self.0.store.decide_at(&plan.checks(set), now);
        let mut decision = Decision::combine(&plan, &verdicts);
        decision.set_rule_set(ActiveRuleSet::of(set));
        if plan.action(0).is_some() {
            for (rule, denied) in decision.rules() {
                report(RuleVerdict {
                    rule,
                    identity: None,
                    denied,
                    delay: Micros::ZERO,
                    is_shadow: false,
                    units: 0,
                    is_overridden: false,
                });
            }
        }
        let mut verdicts = verdicts.iter();
        for ((rule, denied), applied) in decision.rules().zip(&plan.applied) {
            let verdicts = verdicts.by_ref().take(applied.bands.len());
            let delay = verdicts.map(|verdict| verdict.delay).max();
            let delays = decision.allowed() && !applied.is_shadow();
            let has_key = !applied.bands.is_empty();
            report(RuleVerdict {
                rule,
                identity: has_key.then(|| plan.identity(applied, rule)),
                denied,
                delay: delay.filter(|_| delays).unwrap_or_default(),
                is_shadow: applied.is_shadow(),
                units: applied.cost,
                is_overridden: applied.bands.start > 0,
            });
        }
        decision
    }
}

/// The verdict of one rule on a request.
#[derive(Clone, Copy, Debug)]
pub struct RuleVerdict<'a> {
    /// The rule.
    pub rule: &'a ActiveRule,
    /// The encoded identity that it counts; `None` if a part of its key is missing, or it
    /// decides by itself.
    pub identity: Option<&'a [u8]>,
    /// Whether it denies the request, or would if it were not a shadow rule.
    pub denied: bool,
    /// How long it makes the request wait; zero if the request is denied, and for a
    /// shadow rule.
    pub delay: Micros,
    /// Whether it only reports what it would do to this request.
    pub is_shadow: bool,
    /// The units that the request asks it for.
    pub units: u64,
    /// Whether the identity has bands of its own, by an override.
    pub is_overridden: bool,
}
