//! The engine behind every listener: a limiter whose decisions are recorded.

mod any_store;
mod call_limit;
mod filters;
mod handler;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::store::{Micros, Mode};
use fluxgate_core::{
    AdHocCheck, AdHocDecision, AdHocKey, Band, Decision, DynStore, HoldId, IdentityRef, Limiter,
    LimiterError, Observer, OnError, Outcome, RequestContext, RuleSets, Settled, Settlement, Store,
    StoreError, StoredIdentity, Timestamp,
};
use fluxgate_http::server::Origin;
use fluxgate_redis::etag_of;

pub(crate) use any_store::AnyStore;
pub(crate) use call_limit::ThrottleParameters;
pub(crate) use filters::{Filters, LiveFilters};
pub(crate) use handler::EngineHandler;

use crate::identities::Identities;
use crate::telemetry::{self, IdentitySource, Telemetry};

/// Replaces an identity where logs may not name one.
pub(crate) const REDACTED: &str = "(redacted)";

/// Decides requests and records the decisions.
#[derive(Debug)]
pub(crate) struct Engine {
    limiter: Limiter<DynStore>,
    store: AnyStore,
    telemetry: Arc<Telemetry>,
    identities: Arc<Identities>,
    /// Whether rules have been loaded. Before that, nothing is decided.
    has_rules: AtomicBool,
    /// A hash of the active rules.
    revision: Mutex<String>,
    /// Whether the store has ever responded.
    store_reached: AtomicBool,
    /// Whether the service is about to shut down.
    is_stopping: AtomicBool,
}

/// The error of a call that has no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EngineError {
    /// The rules have not been loaded yet.
    #[error("the rules are not loaded yet")]
    NotReady,
    /// The call cannot be answered.
    #[error(transparent)]
    Call(#[from] LimiterError),
}

/// Records the events that the limiter reports.
#[derive(Debug)]
struct TelemetryObserver(Arc<Telemetry>);

impl Observer for TelemetryObserver {
    fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        self.0.record_store_failure(error, on_error);
    }

    fn hold_settled(&self, hold: HoldId, settled: Option<Settled>) {
        self.0.record_settled_hold(hold, settled.is_some());
    }

    fn hold_renewed(&self, hold: HoldId, span: Duration) {
        self.0.record_renewed_hold(hold, span);
    }

    fn hold_expired(&self, hold: HoldId) {
        self.0.record_expired_hold(hold);
    }

    fn rule_set_missing(&self, name: &str) -> bool {
        self.0.log_missing_rule_set(name)
    }
}

impl Engine {
    /// Creates an engine without rules. `call_limits` decides limits that come with the call when
    /// the store fails.
    pub(crate) fn new(
        store: AnyStore,
        call_limits: OnError,
        telemetry: Arc<Telemetry>,
        identities: Arc<Identities>,
    ) -> Self {
        let events = TelemetryObserver(Arc::clone(&telemetry));
        let limiter = Limiter::builder(RuleSets::default(), store.to_dyn())
            .call_limits(call_limits)
            .failure_observer(events)
            .build();
        Self {
            limiter,
            store,
            telemetry,
            identities,
            has_rules: AtomicBool::new(false),
            revision: Mutex::default(),
            store_reached: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Creates an engine without rules on the memory store.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn in_memory() -> Self {
        let store = AnyStore::Memory(Arc::default());
        let (telemetry, _) = Telemetry::new(&crate::config::Telemetry::default(), false);
        let identities = Arc::new(Identities::in_memory());
        Self::new(store, OnError::default(), Arc::new(telemetry), identities)
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &AnyStore {
        &self.store
    }

    /// Returns the telemetry that decisions are recorded in.
    pub(crate) fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Returns what names identities in responses and records.
    pub(crate) fn identities(&self) -> &Arc<Identities> {
        &self.identities
    }

    /// Returns the active rules; `None` before there are any.
    pub(crate) fn rules(&self) -> Option<Arc<RuleSets>> {
        self.is_ready().then(|| self.limiter.rules())
    }

    /// Replaces the active rules; returns the previous ones.
    pub(crate) fn swap_rules(&self, rules: RuleSets) -> Arc<RuleSets> {
        let revision = revision_of(&rules);
        let replaced = self.limiter.swap_rules(rules);
        *self.lock_revision() = revision;
        self.has_rules.store(true, Ordering::Release);
        replaced
    }

    /// Returns a hash of the active rules, which is the same in all instances that have them;
    /// empty before there are any.
    pub(crate) fn revision(&self) -> String {
        self.lock_revision().clone()
    }

    fn lock_revision(&self) -> MutexGuard<'_, String> {
        self.revision.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes state that replaced rules must not leave behind.
    pub(crate) async fn reset_replaced(&self, replaced: &RuleSets) -> Result<(), StoreError> {
        self.limiter.reset_replaced(replaced).await
    }

    /// Starts to report the service as not ready. Requests are still decided.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Returns whether the service is about to shut down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Records that the store has responded.
    pub(crate) fn mark_store_reached(&self) {
        self.store_reached.store(true, Ordering::Release);
    }

    /// Returns whether the store has never responded and requests are denied because of that.
    pub(crate) fn awaits_store(&self) -> bool {
        if self.store_reached.load(Ordering::Acquire) || self.store().redis().is_none() {
            return false;
        }
        let rules = self.limiter.rules();
        let mut on_errors = rules.iter().map(|set| set.on_error());
        self.limiter.call_limits_on_error() == OnError::Deny
            || on_errors.any(|on_error| on_error == OnError::Deny)
    }

    /// Returns whether rules have been loaded.
    pub(crate) fn is_ready(&self) -> bool {
        self.has_rules.load(Ordering::Acquire)
    }

    /// Returns the limiter for calls that no metric but that of store failures counts. Without
    /// rules, it knows only limits that come with the call.
    pub(crate) fn limiter(&self) -> &Limiter<DynStore> {
        &self.limiter
    }

    /// Returns the time by the clock of the store.
    pub(crate) fn store_time(&self) -> Timestamp {
        self.limiter.store().time()
    }

    /// Returns the limiter if rules have been loaded.
    pub(crate) fn ready_limiter(&self) -> Result<&Limiter<DynStore>, EngineError> {
        if self.is_ready() {
            Ok(&self.limiter)
        } else {
            Err(EngineError::NotReady)
        }
    }

    /// Extends holds to `span` from now. Returns whether each is still open.
    pub(crate) async fn renew(
        &self,
        holds: &[HoldId],
        span: Duration,
    ) -> Result<Vec<bool>, EngineError> {
        let span = Micros::from_duration(span);
        let holds: Vec<_> = holds.iter().map(|hold| (*hold, span)).collect();
        let renewed = self.limiter.renew_all(&holds).await;
        self.record_failure(renewed)
    }

    /// Settles a hold. Returns `None` if it has ended, or never existed.
    pub(crate) async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, EngineError> {
        self.record_failure(self.limiter.settle(hold, settlement).await)
    }

    /// Decides a request without charging or recording it.
    pub(crate) async fn peek(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Decision, EngineError> {
        Ok(self.ready_limiter()?.peek(rule_set, context).await)
    }

    /// Decides a request and charges it if it is allowed. `may_wait` says whether the
    /// caller can wait for a delayed request.
    pub(crate) async fn check(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        may_wait: bool,
        origin: &Origin<'_>,
    ) -> Result<Decision, EngineError> {
        let started = telemetry::now();
        let limiter = self.ready_limiter()?;
        let mode = if may_wait { Mode::Take } else { Mode::TakeNow };
        let decision = limiter.check_in_mode(rule_set, context, mode).await;
        self.telemetry
            .record_decision(context, &decision, started, origin);
        Ok(decision)
    }

    /// Decides several requests by rules, and others by limits that come with the call. All of them
    /// are charged together, or none is.
    pub(crate) async fn check_all(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
        own: &[AdHocCheck],
        origin: &Origin<'_>,
    ) -> Result<(Vec<Decision>, Vec<AdHocDecision>), EngineError> {
        let started = telemetry::now();
        let limiter = self.ready_limiter()?;
        let (decisions, own_decisions) = limiter.check_all_with(rule_set, contexts, own).await;
        self.telemetry
            .record_decisions(contexts, &decisions, started, origin);
        let all_pass = decisions.iter().all(Decision::allowed)
            && own_decisions.iter().all(|decision| decision.allowed);
        for (check, decision) in own.iter().zip(&own_decisions) {
            // Where another one is forbidden, nothing was decided.
            if decision.outcome != Outcome::NoRule {
                let charged = if all_pass { check.cost } else { 0 };
                self.telemetry
                    .record_ad_hoc_decision(&check.key, charged, decision, started, origin);
            }
        }
        Ok((decisions, own_decisions))
    }

    /// Decides several calls of one request, which are charged together or not at all, without a
    /// delay. `rules` is `None` if there is no rule set of this name.
    pub(crate) async fn decide_calls(
        &self,
        rule_set: &str,
        rules: Option<&ActiveRuleSet>,
        calls: &[RequestContext<'_>],
        origin: &Origin<'_>,
    ) -> Vec<Decision> {
        let started = telemetry::now();
        let limiter = &self.limiter;
        let decisions = match rules {
            Some(rules) => limiter.check_all_in_mode(rules, calls, Mode::TakeNow).await,
            None => vec![limiter.missing_rule_set(rule_set); calls.len()],
        };
        self.telemetry
            .record_decisions(calls, &decisions, started, origin);
        decisions
    }

    /// Decides several requests without charging or recording them.
    pub(crate) async fn peek_all(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
    ) -> Result<Vec<Decision>, EngineError> {
        let limiter = self.ready_limiter()?;
        Ok(match limiter.active_rule_set(rule_set) {
            Some(rules) => {
                limiter
                    .check_all_in_mode(&rules, contexts, Mode::PeekNow)
                    .await
            }
            None => vec![limiter.missing_rule_set(rule_set); contexts.len()],
        })
    }

    /// Decides several requests that are charged together or not at all, without a delay.
    pub(crate) async fn check_all_now(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
        origin: &Origin<'_>,
    ) -> Result<Vec<Decision>, EngineError> {
        let rules = self.ready_limiter()?.active_rule_set(rule_set);
        let rules = rules.as_ref();
        Ok(self.decide_calls(rule_set, rules, contexts, origin).await)
    }

    /// Charges costs that are reported after the fact, whether or not they fit.
    pub(crate) async fn report_all(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
        origin: &Origin<'_>,
    ) -> Result<Vec<Decision>, EngineError> {
        let started = telemetry::now();
        let decisions = self.ready_limiter()?.report_all(rule_set, contexts).await;
        self.telemetry
            .record_decisions(contexts, &decisions, started, origin);
        Ok(decisions)
    }

    /// Charges an identity under one rule.
    pub(crate) async fn consume(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
        cost: Option<u64>,
        origin: &Origin<'_>,
    ) -> Result<Decision, EngineError> {
        let started = telemetry::now();
        let limiter = self.ready_limiter()?;
        let decision = limiter.consume(rule_set, rule, identity, cost).await?;
        self.telemetry
            .record_consume(identity, cost, &decision, started, origin);
        Ok(decision)
    }

    /// Charges a limit that comes with the call; no rules are needed for it.
    pub(crate) async fn take(
        &self,
        subject: &AdHocKey,
        band: &Band,
        cost: u64,
        origin: &Origin<'_>,
    ) -> AdHocDecision {
        let started = telemetry::now();
        let decision = self.limiter.take(subject, band, cost).await;
        self.telemetry
            .record_ad_hoc_decision(subject, cost, &decision, started, origin);
        decision
    }

    /// Keeps the reservation of a delayed decision, so that the caller can cancel it. If the
    /// store fails, the decision has none.
    pub(crate) async fn keep_reservation(
        &self,
        decision: &mut Decision,
        context: &RequestContext<'_>,
    ) {
        let kept = self.limiter.keep_reservation(decision, context).await;
        let _ = self.record_failure(kept);
    }

    /// Returns the key of a limit that comes with the call, as logs may name it.
    pub(crate) fn ad_hoc_key_in_logs(&self, subject: &AdHocKey) -> String {
        if self.telemetry.names_identities() {
            subject.describe()
        } else {
            REDACTED.into()
        }
    }

    /// Returns an identity of a rule, as logs may name it.
    pub(crate) fn identity_in_logs(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
    ) -> String {
        let identity = match identity {
            IdentityRef::Values(values) => values,
            // The values are not known.
            IdentityRef::Stored(identity) => return self.identities.show(identity),
            _ => return REDACTED.into(),
        };
        let rules = self.limiter.rules();
        let set = rules.get(rule_set);
        let rule = set.and_then(|set| set.rule(rule));
        let described = set.zip(rule).and_then(|(set, rule)| {
            let source = IdentitySource::Values(identity, None);
            self.telemetry.describe_identity(source, set, rule)
        });
        // The rule may have been removed in the meantime.
        described.unwrap_or_else(|| REDACTED.into())
    }

    /// Returns an identity of a rule in the form in which the store keeps it, if there is such a rule.
    pub(crate) fn stored_identity(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
    ) -> Option<StoredIdentity> {
        match identity {
            IdentityRef::Stored(identity) => Some(identity.clone()),
            IdentityRef::Values(values) => {
                let rules = self.limiter.rules();
                let set = rules.get(rule_set)?;
                let encoded = set.identity_of_values(set.rule(rule)?, values)?;
                Some(self.identities.stored(rule_set, rule, &encoded))
            }
            _ => None,
        }
    }

    /// Records a failure of the store in the result of a call to [`limiter`](Self::limiter).
    pub(crate) fn record_failure<T, E: Into<LimiterError>>(
        &self,
        result: Result<T, E>,
    ) -> Result<T, EngineError> {
        result.map_err(|error| {
            let error = error.into();
            if let LimiterError::Store(error) = &error {
                self.telemetry.record_store_failure(error, None);
            }
            error.into()
        })
    }
}

/// Returns the first digits of a hash of the rules.
fn revision_of(rules: &RuleSets) -> String {
    const DIGITS: usize = 8;
    let mut hash = etag_of(&rules.to_yaml());
    hash.truncate(DIGITS);
    hash
}
