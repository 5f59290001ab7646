//! The old rules, which decide every request a second time.

use fluxgate_core::memory::Retention;
use fluxgate_core::{
    Decision, Limiter, ManualClock, MemoryStore, OnMissingRuleSet, RuleSets, RuleVerdict, Timestamp,
};

use super::{Change, Changes, Refusals};
use crate::event::{Request, Settle};
use crate::holds::Holds;
use crate::missing_sets::MissingRuleSets;

/// The old rules with their own state, and the requests that they decide differently.
#[derive(Debug)]
pub(crate) struct OldRules {
    limiter: Limiter<MemoryStore<ManualClock>>,
    missing: MissingRuleSets,
    holds: Holds,
    /// The only rule set, if there is only one.
    only_set: Option<String>,
    changes: Changes,
    /// The new rules that refuse the current request.
    by_new: Refusals,
    /// The old rules that refuse it.
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
            holds: Holds::default(),
        }
    }

    /// Records how one of the new rules decided the request that is compared next.
    pub(crate) fn record_new(&mut self, verdict: &RuleVerdict<'_>) {
        self.by_new.add(verdict);
    }

    /// Decides a request that the new rules have decided under `rule_set`, and returns the
    /// change, if there is one.
    pub(crate) fn compare(
        &mut self,
        rule_set: &str,
        request: &Request<'_>,
        at: Timestamp,
        new: &Decision,
    ) -> Option<Change> {
        let mut old_set = rule_set;
        let is_named = request.rule_set.is_some();
        if let Some(only) = self.only_set.as_deref().filter(|_| !is_named) {
            // The set may have been renamed.
            old_set = only;
        }
        let by_old = &mut self.by_old;
        let old = self
            .limiter
            .check_at_reporting(old_set, &request.context, at, |verdict| {
                by_old.add(&verdict);
            });
        let name = request.hold.as_deref();
        self.holds.record(&self.limiter, name, &old);
        let change = match (old.allowed(), new.allowed()) {
            (true, false) => Some((Change::NewlyDenied, rule_set, &self.by_new)),
            (false, true) => Some((Change::NewlyAdmitted, old_set, &self.by_old)),
            _ => None,
        };
        if let Some((change, set, refusals)) = change {
            self.changes.record(change, set, at, refusals);
        }
        let change = change.map(|(change, ..)| change);
        self.by_new.clear();
        self.by_old.clear();
        change
    }

    /// Settles a hold, if the old rules have one of this name.
    pub(crate) fn settle(&self, settle: &Settle<'_>, at: Timestamp) {
        self.holds.settle(&self.limiter, settle, at);
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns the rule sets that requests name and that the old rules lack, and how these
    /// requests are decided.
    pub(crate) fn missing(&self) -> (Vec<String>, OnMissingRuleSet) {
        (self.missing.names(), self.limiter.rules().on_missing())
    }
}
