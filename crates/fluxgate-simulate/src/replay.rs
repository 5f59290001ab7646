//! Rules, and the state that replayed requests leave behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fluxgate_core::memory::Retention;
use fluxgate_core::{
    Decision, HoldId, Limiter, ManualClock, MemoryStore, Observer, OnMissingRuleSet, RuleSets,
    Settled, Settlement, Timestamp,
};

use crate::event::RecordedSettlement;

/// A limiter that never forgets, and that decides at the times of the requests.
pub(crate) type VirtualLimiter = Limiter<MemoryStore<ManualClock>>;

/// Creates the store of a [`VirtualLimiter`].
pub(crate) fn virtual_store() -> MemoryStore<ManualClock> {
    MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever)
}

/// Rules, and the state that replayed requests leave behind.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) limiter: VirtualLimiter,
    missing: MissingRuleSets,
    /// The latest hold of each name that the record gives.
    holds: HashMap<Box<str>, HoldId>,
}

impl Replay {
    pub(crate) fn new(rules: RuleSets) -> Self {
        let missing = MissingRuleSets::default();
        Self {
            limiter: Limiter::builder(rules, virtual_store())
                .failure_observer(missing.clone())
                .build(),
            missing,
            holds: HashMap::new(),
        }
    }

    /// Returns whether there is a hold of this name that has not ended.
    pub(crate) fn is_held(&self, name: &str, at: Timestamp) -> bool {
        let hold = self.holds.get(name);
        hold.is_some_and(|hold| self.limiter.store().is_held_at(*hold, at))
    }

    /// Keeps the hold of a decision, if it has one and the record names it.
    pub(crate) fn record_hold(&mut self, name: Option<&str>, decision: &Decision) {
        let Some(hold) = decision.hold() else { return };
        let forgotten = match name {
            Some(name) => self.holds.insert(name.into(), hold),
            // No line can settle it.
            None => Some(hold),
        };
        if let Some(hold) = forgotten {
            self.limiter.store().forget_hold(hold);
        }
    }

    /// Settles a hold, unless there is none of this name or it has ended.
    pub(crate) fn settle(
        &self,
        settlement: &RecordedSettlement<'_>,
        at: Timestamp,
    ) -> Option<Settled> {
        let hold = *self.holds.get(&*settlement.hold)?;
        let units = settlement.attributes.iter();
        let attributes: Vec<_> = units.map(|(name, units)| (&**name, *units)).collect();
        let settlement = match settlement.cost {
            Some(cost) => Settlement::Cost(cost),
            None if attributes.is_empty() => Settlement::AsReserved,
            None => Settlement::Attributes(&attributes),
        };
        self.limiter.settle_at(hold, settlement, at)
    }

    /// Returns the names of the rule sets that requests name and that do not exist, in the order
    /// of the requests, and how these requests are decided.
    pub(crate) fn missing_rule_sets(&self) -> (Vec<String>, OnMissingRuleSet) {
        (self.missing.names(), self.limiter.rules().on_missing())
    }
}

/// The names of rule sets that do not exist. Clones share them.
#[derive(Clone, Debug, Default)]
struct MissingRuleSets(Arc<Mutex<Vec<String>>>);

impl MissingRuleSets {
    fn names(&self) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.clone()
    }
}

impl Observer for MissingRuleSets {
    fn rule_set_missing(&self, name: &str) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(name.to_owned());
        true
    }
}
