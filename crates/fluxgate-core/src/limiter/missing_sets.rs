//! Rule sets that requests name and that do not exist.

use super::Limiter;
#[cfg(feature = "tracing")]
use super::missing_names::MAX_NAMES;
use crate::decision::{Decision, Outcome};
use crate::rules::{OnMissingRuleSet, RuleSets};
use crate::store::Store;
use crate::time::Retry;

impl<S: Store> Limiter<S> {
    /// Returns the decision on a rule set that does not exist, and reports the name.
    pub(super) fn without_rule_set(&self, name: &str, rules: &RuleSets) -> Decision {
        self.decide_missing(name, rules, self.0.logs_missing)
    }

    /// Decides like [`Limiter::without_rule_set`], and tells the observers but not the log: the
    /// requests of a simulation are not real.
    pub(super) fn simulate_missing(&self, name: &str, rules: &RuleSets) -> Decision {
        self.decide_missing(name, rules, false)
    }

    fn decide_missing(&self, name: &str, rules: &RuleSets, logs: bool) -> Decision {
        // If another thread holds the lock, the next request reports the name.
        if let Ok(mut names) = self.0.missing.try_lock() {
            if logs && let Some(count) = names.log(name) {
                log_missing(name, rules, self.on_missing(rules), count);
            }
            names.report(name, || self.report_missing(name));
        }
        match self.on_missing(rules) {
            OnMissingRuleSet::Allow => Decision::no_rule(),
            OnMissingRuleSet::Deny => Decision::without_rule(false, Outcome::Denied, Retry::Never),
        }
    }

    fn on_missing(&self, rules: &RuleSets) -> OnMissingRuleSet {
        self.0.on_missing.unwrap_or(rules.on_missing())
    }

    /// Returns whether an observer has reported a missing rule set.
    fn report_missing(&self, name: &str) -> bool {
        let mut is_reported = false;
        for observer in &self.0.observers {
            is_reported |= observer.rule_set_missing(name);
        }
        is_reported
    }
}

#[cfg(feature = "tracing")]
fn log_missing(name: &str, rules: &RuleSets, on_missing: OnMissingRuleSet, count: usize) {
    let effect = match on_missing {
        OnMissingRuleSet::Allow => "allowed",
        OnMissingRuleSet::Deny => "denied",
    };
    tracing::warn!(
        target: "fluxgate",
        rule_set = name,
        did_you_mean = rules.nearest_name(name),
        requests = effect,
        "there is no such rule set"
    );
    if count == MAX_NAMES {
        tracing::warn!(target: "fluxgate", "further missing rule sets are not logged");
    }
}

#[cfg(not(feature = "tracing"))]
fn log_missing(_: &str, _: &RuleSets, _: OnMissingRuleSet, _: usize) {}
