//! The old rules, which decide every request once more.

use fluxgate_core::internals::{Retention, RuleVerdict};
use fluxgate_core::{
    Decision, Limiter, ManualClock, MemoryStore, OnMissingRuleSet, RequestContext, RuleSets,
    Timestamp,
};

use super::{Change, Changes, Refusals};
use crate::missing_sets::MissingRuleSets;

/// Rules that others replace, with their own state, and what changes for the requests.
#[derive(Debug)]
pub(crate) struct OldRules {
    limiter: Limiter<MemoryStore<ManualClock>>,
    missing: MissingRuleSets,
    /// The only rule set, if there is only one.
    only_set: Option<String>,
    changes: Changes,
    /// The refusals of the new rules, for the request that they decided last.
    by_new: Refusals,
    by_old: Refusals,
}

impl OldRules {
    pub(crate) fn new(old: RuleSets, new: &RuleSets) -> Self {
        let store = MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever);
        let missing = MissingRuleSets::default();
        Self {
            only_set: old.only().map(|set| set.name().to_owned()),
            changes: Changes::new(&old, new),
            by_new: Refusals::default(),
            by_old: Refusals::default(),
            limiter: Limiter::builder(old, store)
                .failure_observer(missing.clone())
                .build(),
            missing,
        }
    }

    /// Notes how one of the new rules decided the request that is compared next.
    pub(crate) fn note_new(&mut self, verdict: &RuleVerdict<'_>) {
        self.by_new.add(verdict);
    }

    /// Decides a request that the new rules have decided under `rule_set`, and returns
    /// whether both decide it alike. `is_named` is true if the request names that set.
    pub(crate) fn compare(
        &mut self,
        (rule_set, is_named): (&str, bool),
        context: &RequestContext<'_>,
        at: Timestamp,
        new: &Decision,
    ) -> Option<Change> {
        let mut old_set = rule_set;
        if let Some(only) = self.only_set.as_deref().filter(|_| !is_named) {
            // Under its other name, if it has been renamed.
            old_set = only;
        }
        let by_old = &mut self.by_old;
        let old = self
            .limiter
            .check_at_reporting(old_set, context, at, |verdict| by_old.add(&verdict));
        let change = match (old.allowed(), new.allowed()) {
            (true, false) => {
                let change = Change::NewlyDenied;
                self.changes.record(change, rule_set, at, &self.by_new);
                Some(change)
            }
            (false, true) => {
                let change = Change::NewlyAdmitted;
                self.changes.record(change, old_set, at, &self.by_old);
                Some(change)
            }
            _ => {
                self.changes.record_unchanged();
                None
            }
        };
        self.by_new.clear();
        self.by_old.clear();
        change
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns the names of rule sets that requests named and that the old rules lack, and
    /// how those requests were decided.
    pub(crate) fn missing(&self) -> (Vec<String>, OnMissingRuleSet) {
        (self.missing.names(), self.limiter.rules().on_missing())
    }
}
