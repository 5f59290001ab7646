//! The embedded engine as a handler.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{
    Charge, Decision, Limiter, Micros, Place, RequestContext, RuleSetInForce, Store,
};

use super::{Handler, Wanted, at_once_or_in_background};

impl<S: Store + 'static> Handler for Arc<Limiter<S>> {
    type Ruling = Decision;
    /// `None` where there is no rule set of that name.
    type Rules = Option<RuleSetInForce>;
    type Charge = Charge;

    fn rules(&self, rule_set: &str) -> Self::Rules {
        self.rule_set(rule_set)
    }

    fn wanted_headers<'r>(&'r self, rules: &'r Self::Rules) -> Wanted<'r> {
        Wanted::Only(rules.as_ref().map_or(&[], |set| set.header_names()))
    }

    fn decide_at_once(
        &self,
        _: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
    ) -> Option<Decision> {
        self.check_at_once(rules.as_ref()?, context)
    }

    async fn decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
    ) -> Decision {
        match rules {
            Some(rules) => self.check_by(rules, context).await,
            None => self.missing_rule_set(rule_set),
        }
    }

    fn charge(&self, _: &str, context: &RequestContext<'_>, decision: &Decision) -> Option<Charge> {
        decision.charge(context)
    }

    fn give_back(&self, charge: Charge, waited: Micros) {
        let limiter = Arc::clone(self);
        at_once_or_in_background(async move {
            if let Err(error) = Limiter::give_back(&limiter, charge, waited).await {
                tracing::warn!(%error, "units of a request that went away are not given back");
            }
        });
    }

    async fn begin_wait(&self, longest: Duration) -> Option<Place> {
        // A store that cannot be asked keeps nobody from waiting: the bound of
        // this process still holds.
        let place = Limiter::begin_wait(self, longest).await;
        place.unwrap_or(Some(Place::unbounded()))
    }
}
