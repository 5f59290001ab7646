//! Decisions when the store fails.

use super::Limiter;
use crate::decision::Decision;
use crate::memory::MemoryStore;
use crate::plan::{Ends, Plan};
use crate::rules::{OnError, RuleSet};
use crate::store::{Checks, LocalStore, Store, StoreError, Verdicts};

/// The decision after the store failed.
pub(super) enum Fallback {
    /// The same for every request.
    Fixed(Decision),
    /// The verdicts of the fallback store.
    Local(Verdicts),
}

impl<S: Store> Limiter<S> {
    /// Makes the decision from the store's answer, or without it if the store failed.
    pub(super) fn conclude(
        &self,
        set: &RuleSet,
        plan: &Plan,
        checks: &Checks<'_>,
        verdicts: Result<Verdicts, StoreError>,
    ) -> Decision {
        match verdicts {
            Ok(verdicts) => Decision::combine(plan, &verdicts),
            Err(error) => match self.fall_back(set.on_error(), checks, &error) {
                Fallback::Fixed(decision) => decision,
                Fallback::Local(verdicts) => Decision::combine(plan, &verdicts).into_fallback(),
            },
        }
    }

    /// Makes the decisions on several requests, like [`Limiter::conclude`].
    pub(super) fn conclude_all(
        &self,
        set: &RuleSet,
        (plan, ends): (&Plan, &(Ends, Ends)),
        checks: &Checks<'_>,
        verdicts: Result<Verdicts, StoreError>,
    ) -> Vec<Decision> {
        match verdicts {
            Ok(verdicts) => Decision::combine_all(plan, ends, &verdicts),
            Err(error) => {
                let decisions = match self.fall_back(set.on_error(), checks, &error) {
                    Fallback::Fixed(decision) => vec![decision; ends.0.len()],
                    Fallback::Local(verdicts) => Decision::combine_all(plan, ends, &verdicts)
                        .into_iter()
                        .map(Decision::into_fallback)
                        .collect(),
                };
                // A request that a rule decides by itself needs no store.
                let decisions = decisions.into_iter().enumerate();
                let decisions = decisions.map(|(request, decision)| {
                    plan.action(request).map_or(decision, Decision::by_action)
                });
                decisions.collect()
            }
        }
    }

    /// Decides after the store failed.
    pub(super) fn fall_back(
        &self,
        on_error: OnError,
        checks: &Checks<'_>,
        error: &StoreError,
    ) -> Fallback {
        let decides = checks.mode().takes().then_some(on_error);
        for observer in &self.0.observers {
            observer.store_failed(error, decides);
        }
        match on_error {
            OnError::Allow => Fallback::Fixed(Decision::failed_open()),
            OnError::Deny => Fallback::Fixed(Decision::failed_closed()),
            OnError::Local => {
                let fallback = self.0.fallback.get_or_init(MemoryStore::default);
                Fallback::Local(fallback.decide_now(checks))
            }
        }
    }
}
