//! Rule sets that requests name and that do not exist.

use std::collections::HashSet;
use std::sync::Mutex;

use super::observers::Observers;
use crate::decision::{Decision, Outcome};
use crate::rules::{OnMissingRuleSet, RuleSets};
use crate::sip::public_hash;
use crate::time::Retry;

/// How many names are remembered. They may come from clients, so neither the memory nor the
/// log may grow with them.
const MAX_NAMES: usize = 1_000;

/// Decides requests that name a missing rule set, and reports each name once.
#[derive(Debug)]
pub(super) struct MissingRuleSets {
    names: Mutex<MissingNames>,
    /// The decision; `None` if the rules say it.
    pub(super) decision: Option<OnMissingRuleSet>,
    /// Whether the names are logged here, and not by an observer.
    pub(super) are_logged: bool,
}

/// Hashes of the names of missing rule sets. The names themselves may be long.
#[derive(Debug, Default)]
struct MissingNames {
    /// Those that observers have reported.
    reported: HashSet<u64>,
    /// Those that the limiter has logged.
    logged: HashSet<u64>,
}

impl MissingRuleSets {
    pub(super) fn new() -> Self {
        Self {
            names: Mutex::default(),
            decision: None,
            are_logged: true,
        }
    }

    /// Returns the decision on a rule set that does not exist, and reports the name. It is not
    /// logged if the request `is_simulated`.
    pub(super) fn decide(
        &self,
        name: &str,
        rules: &RuleSets,
        observers: &Observers,
        is_simulated: bool,
    ) -> Decision {
        let logs = self.are_logged && !is_simulated;
        let on_missing = self.decision.unwrap_or(rules.on_missing());
        // If another thread holds the lock, the next request reports the name.
        if let Ok(mut names) = self.names.try_lock() {
            if logs && let Some(count) = names.log(name) {
                log_missing(name, rules, on_missing, count);
            }
            names.report(name, || observers.rule_set_missing(name));
        }
        match on_missing {
            OnMissingRuleSet::Allow => Decision::no_rule(),
            OnMissingRuleSet::Deny => Decision::without_rule(false, Outcome::Denied, Retry::Never),
        }
    }
}

impl MissingNames {
    /// Returns how many names have been logged, if this one must be logged now.
    fn log(&mut self, name: &str) -> Option<usize> {
        let is_new = self.logged.len() < MAX_NAMES && self.logged.insert(hash(name));
        is_new.then_some(self.logged.len())
    }

    /// Calls `report` unless the name has been reported. It returns whether it is now.
    fn report(&mut self, name: &str, report: impl FnOnce() -> bool) {
        let hash = hash(name);
        if !self.reported.contains(&hash) && report() {
            // Reporting a name twice is better than growing without bound.
            if self.reported.len() >= MAX_NAMES {
                self.reported.clear();
            }
            self.reported.insert(hash);
        }
    }
}

fn hash(name: &str) -> u64 {
    public_hash(name.as_bytes()) as u64
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
