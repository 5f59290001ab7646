//! Metrics of a limiter, under the names that the service uses.

use std::time::Duration;

use super::Observer;
use crate::decision::{Decision, Outcome, WaitRefusal};
use crate::hold::{HoldId, Settled};
use crate::rules::OnError;
use crate::store::StoreError;

/// Records decisions with the crate `metrics`.
///
/// | metric | labels |
/// |---|---|
/// | `fluxgate_decisions_total` | `rule_set`, `rule` (the reported one), `outcome` |
/// | `fluxgate_decision_duration_seconds` | |
/// | `fluxgate_fallback_decisions_total` | |
/// | `fluxgate_store_errors_total` | `reason` |
/// | `fluxgate_failclosed_total` | `reason` |
/// | `fluxgate_waiting` | (a gauge) |
/// | `fluxgate_waits_refused_total` | `reason`: `too_long`, `too_many` |
/// | `fluxgate_holds_expired_total` | |
/// | `fluxgate_late_settles_total` | |
/// | `fluxgate_config_last_reload_successful` | (a gauge: 1 or 0) |
/// | `fluxgate_config_reload_failures_total` | |
/// | `fluxgate_missing_rule_sets_total` | |
///
/// No label holds an identity or a path. The Redis store counts its script reloads itself,
/// with the feature `metrics` of `fluxgate-redis`.
///
/// ```
/// use fluxgate_core::{Limiter, MemoryStore, MetricsObserver, RuleSets};
///
/// let limiter = Limiter::builder(RuleSets::default(), MemoryStore::default())
///     .observer(MetricsObserver::default())
///     .build();
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MetricsObserver {}

impl Observer for MetricsObserver {
    fn decided(&self, decision: &Decision, took: Duration) {
        let rule_set = decision.rule_set().map_or("", |set| set.name()).to_owned();
        let rule = decision.rule().map_or("", |rule| rule.id()).to_owned();
        let outcome = decision.outcome().name();
        metrics::counter!(
            "fluxgate_decisions_total",
            "rule_set" => rule_set, "rule" => rule, "outcome" => outcome,
        )
        .increment(1);
        metrics::histogram!("fluxgate_decision_duration_seconds").record(took);
        if decision.outcome() == Outcome::Fallback {
            metrics::counter!("fluxgate_fallback_decisions_total").increment(1);
        }
    }

    fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        let reason = error.reason.name();
        metrics::counter!("fluxgate_store_errors_total", "reason" => reason).increment(1);
        if on_error == Some(OnError::Deny) {
            metrics::counter!("fluxgate_failclosed_total", "reason" => reason).increment(1);
        }
    }

    fn wait_began(&self) {
        metrics::gauge!("fluxgate_waiting").increment(1);
    }

    fn wait_ended(&self) {
        metrics::gauge!("fluxgate_waiting").decrement(1);
    }

    fn wait_refused(&self, _: &Decision, refusal: WaitRefusal) {
        let reason = refusal.name();
        metrics::counter!("fluxgate_waits_refused_total", "reason" => reason).increment(1);
    }

    fn hold_expired(&self, _: HoldId) {
        metrics::counter!("fluxgate_holds_expired_total").increment(1);
    }

    fn hold_settled(&self, _: HoldId, settled: Option<Settled>) {
        if settled.is_none() {
            metrics::counter!("fluxgate_late_settles_total").increment(1);
        }
    }

    fn rules_changed(&self, loaded: Result<(), &(dyn std::error::Error + 'static)>) {
        let successful = if loaded.is_ok() { 1.0 } else { 0.0 };
        metrics::gauge!("fluxgate_config_last_reload_successful").set(successful);
        if loaded.is_err() {
            metrics::counter!("fluxgate_config_reload_failures_total").increment(1);
        }
    }

    fn rule_set_missing(&self, _: &str) -> bool {
        metrics::counter!("fluxgate_missing_rule_sets_total").increment(1);
        true
    }
}
