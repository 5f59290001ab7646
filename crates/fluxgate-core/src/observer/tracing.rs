//! Events of a limiter for the crate `tracing`.

use std::time::Duration;

use super::Observer;
use crate::decision::{Decision, WaitRefusal};
use crate::rules::OnError;
use crate::store::StoreError;

/// Records decisions as events of the crate `tracing`, with the target `fluxgate`: at the
/// level `DEBUG` if a request is allowed, `INFO` if it is denied or may not wait, and `WARN`
/// if the store fails. No event holds an identity or a path.
///
/// ```
/// use fluxgate_core::{Limiter, MemoryStore, RuleSets, TracingObserver};
///
/// let limiter = Limiter::builder(RuleSets::default(), MemoryStore::default())
///     .observer(TracingObserver::default())
///     .build();
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TracingObserver {}

/// Emits an event with the fields of a decision.
macro_rules! event {
    ($level:ident, $decision:expr, $took:expr) => {
        tracing::event!(
            target: "fluxgate",
            tracing::Level::$level,
            rule_set = $decision.rule_set().map(|set| set.name()),
            rule = $decision.rule().map(|rule| rule.id()),
            band = $decision.band().map(|band| band.id()),
            outcome = $decision.outcome().name(),
            remaining = $decision.remaining(),
            took = ?$took,
            "decided"
        )
    };
}

impl Observer for TracingObserver {
    fn decided(&self, decision: &Decision, took: Duration) {
        if decision.allowed() {
            event!(DEBUG, decision, took);
        } else {
            event!(INFO, decision, took);
        }
    }

    fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        tracing::warn!(target: "fluxgate", %error, ?on_error, "the store failed");
    }

    fn wait_refused(&self, decision: &Decision, refusal: WaitRefusal) {
        tracing::info!(
            target: "fluxgate",
            rule_set = decision.rule_set().map(|set| set.name()),
            rule = decision.rule().map(|rule| rule.id()),
            reason = refusal.name(),
            "the request may not wait"
        );
    }

    fn rules_changed(&self, loaded: Result<(), &(dyn std::error::Error + 'static)>) {
        match loaded {
            Ok(()) => tracing::info!(target: "fluxgate", "new rules are active"),
            Err(error) => tracing::warn!(
                target: "fluxgate",
                error = %error,
                "the rules cannot be loaded; the old ones stay active"
            ),
        }
    }
}
