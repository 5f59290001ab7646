//! Rule sets that requests name and that do not exist.

use super::Limiter;
use crate::decision::{Decision, Outcome};
use crate::rules::OnMissingRuleSet;
use crate::sip::Sip13;
use crate::store::Store;
use crate::time::Retry;

impl<S: Store> Limiter<S> {
    pub(super) fn without_rule_set(&self, name: &str, on_missing: OnMissingRuleSet) -> Decision {
        const MAX_NAMES: usize = 1_000;
        // If another thread holds the lock, the next request reports the name.
        if !self.0.observers.is_empty()
            && let Ok(mut reported) = self.0.missing.try_lock()
        {
            let hash = Sip13::PUBLIC.hash(name.as_bytes()) as u64;
            if !reported.contains(&hash) && self.report_missing(name) {
                // Reporting a name twice is better than growing without bound.
                if reported.len() >= MAX_NAMES {
                    reported.clear();
                }
                reported.insert(hash);
            }
        }
        match on_missing {
            OnMissingRuleSet::Allow => Decision::no_rule(),
            OnMissingRuleSet::Deny => Decision::without_rule(false, Outcome::Denied, Retry::Never),
        }
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
