//! The old rules, which decide every request a second time.

use fluxgate_core::{Decision, OnMissingRuleSet, RuleSets, RuleVerdict, Timestamp};

use super::{Change, Changes, Refusals};
use crate::event::{RecordedRequest, RecordedSettlement};
use crate::replay::Replay;

/// The old rules with their own state, and the requests that they decide differently.
#[derive(Debug)]
pub(crate) struct OldRules {
    replay: Replay,
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
        Self {
            only_set: old.only().map(|set| set.name().to_owned()),
            changes: Changes::new(&old, new),
            by_new: Refusals::default(),
            by_old: Refusals::default(),
            replay: Replay::new(old),
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
        request: &RecordedRequest<'_>,
        at: Timestamp,
        new: &Decision,
    ) -> Option<Change> {
        let old_set = match &self.only_set {
            // The set may have been renamed.
            Some(only) if request.rule_set.is_none() => only,
            _ => rule_set,
        };
        let by_old = &mut self.by_old;
        let limiter = &self.replay.limiter;
        let old = limiter.check_at_reporting(old_set, &request.context, at, |verdict| {
            by_old.add(&verdict);
        });
        let (change, set, refusals) = match (old.allowed(), new.allowed()) {
            (true, false) => (Some(Change::NewlyDenied), rule_set, &self.by_new),
            (false, true) => (Some(Change::NewlyAdmitted), old_set, &self.by_old),
            _ => (None, old_set, &self.by_old),
        };
        if let Some(change) = change {
            self.changes.record(change, set, at, refusals);
        }
        self.replay.record_hold(request.hold.as_deref(), &old);
        self.by_new.clear();
        self.by_old.clear();
        change
    }

    /// Settles a hold, if the old rules have one of this name.
    pub(crate) fn settle(&self, settlement: &RecordedSettlement<'_>, at: Timestamp) {
        self.replay.settle(settlement, at);
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns the rule sets that requests name and that the old rules lack, and how these
    /// requests are decided.
    pub(crate) fn missing_rule_sets(&self) -> (Vec<String>, OnMissingRuleSet) {
        self.replay.missing_rule_sets()
    }
}
