//! The holds of recorded requests, by the names that the record gives them.

use std::collections::HashMap;

use fluxgate_core::{
    Decision, HoldId, Limiter, ManualClock, MemoryStore, Settled, Settlement, Timestamp,
};

use crate::event::Settle;

type SimulatedLimiter = Limiter<MemoryStore<ManualClock>>;

/// The latest hold of each name.
#[derive(Debug, Default)]
pub(crate) struct Holds(HashMap<Box<str>, HoldId>);

impl Holds {
    /// Returns whether there is a hold of this name that has not ended.
    pub(crate) fn is_held(&self, limiter: &SimulatedLimiter, name: &str, at: Timestamp) -> bool {
        let hold = self.0.get(name);
        hold.is_some_and(|hold| limiter.store().is_held_at(*hold, at))
    }

    /// Keeps the hold of a decision, if it has one and the record names it.
    pub(crate) fn record(
        &mut self,
        limiter: &SimulatedLimiter,
        name: Option<&str>,
        decision: &Decision,
    ) {
        let Some(hold) = decision.hold() else { return };
        let forgotten = match name {
            Some(name) => self.0.insert(name.into(), hold),
            // Nobody can settle it.
            None => Some(hold),
        };
        if let Some(hold) = forgotten {
            limiter.store().forget_hold(hold);
        }
    }

    /// Settles a hold, unless there is none of this name or it has ended.
    pub(crate) fn settle(
        &self,
        limiter: &SimulatedLimiter,
        settle: &Settle<'_>,
        at: Timestamp,
    ) -> Option<Settled> {
        let hold = *self.0.get(&*settle.hold)?;
        let attributes: Vec<_> = { settle.attributes.iter() }
            .map(|(name, units)| (&**name, *units))
            .collect();
        let settlement = match settle.cost {
            Some(cost) => Settlement::Cost(cost),
            None if attributes.is_empty() => Settlement::AsReserved,
            None => Settlement::Attributes(&attributes),
        };
        limiter.settle_at(hold, settlement, at)
    }
}
