//! The outcome of each rule that took part in a decision.

use super::outcome::Outcome;
use super::{DecidedRule, Decision};
use crate::band::Band;
use crate::rules::ActiveRule;

/// What one rule contributed to a decision.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RuleOutcome<'d> {
    /// The rule.
    pub rule: &'d ActiveRule,
    /// The outcome of this rule.
    pub outcome: Outcome,
    /// Whether the rule refused the request. A shadow rule never does.
    pub refused: bool,
    /// The band that denies: the reported one if this rule is reported, else the first that
    /// denies. `None` if none denies, if a part of the key is missing, and for an action.
    pub band: Option<&'d Band>,
}

impl Decision {
    /// Returns the outcome of every rule that was charged or that refused the request, each once:
    ///
    /// - a rule that was charged: [`Outcome::Allowed`];
    /// - a rule that denied it: [`Outcome::Denied`], or [`Outcome::Never`] if this rule alone would
    ///   never let it pass;
    /// - a shadow rule: [`Outcome::Allowed`] or [`Outcome::ShadowDenied`];
    /// - an action: [`Outcome::Forbidden`] or [`Outcome::Exempt`];
    /// - every one of these, if the fallback store decided: [`Outcome::Fallback`].
    ///
    /// A rule that would have let a denied request pass was not charged and is left out, unless it
    /// charges in any case. Without a rule, as where the store failed, there is none.
    ///
    /// ```
    /// use fluxgate_core::{Limiter, ManualClock, MemoryStore, Outcome, Quota, RequestContext};
    /// use fluxgate_core::{Rule, RuleSet};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::builder("api")
    ///     .rule(Rule::new("all").global().band(Quota::per_minute(9)))
    ///     .rule(Rule::new("per-user").per_user().band(Quota::per_minute(1)))
    ///     .build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::with_clock(ManualClock::default()));
    /// let api = limiter.rule_set("api")?;
    /// let ann = RequestContext::builder().user("ann").build();
    /// assert_eq!(api.check_sync(&ann).rule_outcomes().count(), 2);
    ///
    /// let denied = api.check_sync(&ann);
    /// let outcomes: Vec<_> = denied.rule_outcomes().map(|it| (it.rule.id(), it.outcome)).collect();
    /// assert_eq!(outcomes, [("per-user", Outcome::Denied)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rule_outcomes(&self) -> impl Iterator<Item = RuleOutcome<'_>> {
        let set = self.set.as_deref();
        self.rules.iter().filter_map(move |decided| {
            let rule = set?.rules().get(decided.rule as usize)?;
            Some(RuleOutcome {
                rule,
                outcome: self.outcome_of(rule, decided)?,
                refused: decided.denies && !decided.is_shadow,
                band: self.denying_band(rule, decided),
            })
        })
    }

    fn outcome_of(&self, rule: &ActiveRule, decided: &DecidedRule) -> Option<Outcome> {
        if matches!(self.outcome, Outcome::Forbidden | Outcome::Exempt) {
            return Some(self.outcome);
        }
        let is_charged = self.allowed && !self.is_uncharged;
        let own = match (decided.denies, decided.is_shadow) {
            (true, true) => Outcome::ShadowDenied,
            (true, false) if decided.is_never => Outcome::Never,
            (true, false) => Outcome::Denied,
            (false, _) if is_charged || rule.charges_always() => Outcome::Allowed,
            (false, _) => return None,
        };
        Some(match self.outcome {
            Outcome::Fallback => Outcome::Fallback,
            _ => own,
        })
    }

    fn denying_band<'d>(&self, rule: &'d ActiveRule, decided: &DecidedRule) -> Option<&'d Band> {
        if !decided.denies {
            return None;
        }
        let reported = self.reported.filter(|it| it.rule == decided.rule);
        let mut violated = self.violated.iter().copied();
        let denying = reported.or_else(|| violated.find(|it| it.rule == decided.rule))?;
        rule.band(denying.band?)
    }
}
