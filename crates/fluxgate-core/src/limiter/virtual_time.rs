//! Deciding at any instant, for those who replay what has happened.

use super::Limiter;
use crate::algorithm::Mode;
use crate::clock::Clock;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::memory::MemoryStore;
use crate::plan::Plan;
use crate::rules::{ActiveRuleSet, Rule};
use crate::time::{Micros, Timestamp};

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Decides a request of the instant `now`, whatever the store's clock says.
    pub fn check_at(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        now: Timestamp,
    ) -> Decision {
        self.check_at_reporting(rule_set, context, now, |_| {})
    }

    /// Like [`Limiter::check_at`]; `note` is told how every rule that was decided
    /// took the request.
    pub fn check_at_reporting(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        now: Timestamp,
        mut note: impl FnMut(RuleVerdict<'_>),
    ) -> Decision {
        let rules = self.rules.load();
        let Some(set) = rules.get(rule_set) else {
            return self.without_rule_set(rule_set, rules.on_missing());
        };
        let mut plan = Plan::new(Mode::Take);
        plan.fill(set, context);
        let verdicts = self.store.decide_at(&plan.checks, now);
        let mut decision = Decision::combine(&plan, &verdicts);
        decision.belongs_to(ActiveRuleSet::hold(set));
        let mut verdicts = verdicts.iter();
        for ((rule, refused), applied) in decision.rules().zip(&plan.applied) {
            let verdicts = verdicts.by_ref().take(applied.bands.len());
            let delay = verdicts.map(|verdict| verdict.delay).max();
            let delays = decision.allowed() && !applied.shadow;
            let known = !applied.bands.is_empty();
            note(RuleVerdict {
                rule,
                identity: known.then(|| plan.identity(applied)),
                refused,
                delay: delay.filter(|_| delays).unwrap_or_default(),
            });
        }
        decision
    }
}

/// How one rule took a request.
#[derive(Clone, Copy, Debug)]
pub struct RuleVerdict<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Whom it counts, encoded; `None` where a part of its key is missing.
    pub identity: Option<&'a [u8]>,
    /// Whether it refused, or, in shadow, would have.
    pub refused: bool,
    /// How long it makes the request wait; zero where the request is refused,
    /// and of a shadow rule.
    pub delay: Micros,
}
