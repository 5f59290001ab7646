//! Units on lease in states and explanations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fluxgate_core::store::{
    Charged, Checks, HoldId, Micros, Reason, Settled, Settlement, Subject, Timestamp, Verdicts,
};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Band, DynStore, Lease, Limiter, LimiterError, MemoryStore, Percent, RequestContext, RuleSets,
    Store, StoreError,
};

const RULES: &str = "
rule_sets:
  api:
    rules:
      - id: leased
        scope: per_user
        algorithm: fixed_window
        lease: { share: 20%, for: 1s }
        bands: [ { id: few, capacity: 10, window: 1h }, { id: many, capacity: 100, window: 1h } ]
      - id: exact
        scope: per_ip
        lease: { share: 20%, for: 1s }
        algorithm: sliding_log
        bands: [ { capacity: 10, window: 1h } ]
";

/// A store in memory with units out on lease: 7 of the first band of a subject, 8 of the next.
#[derive(Debug, Default)]
struct Leasing {
    memory: MemoryStore,
    asked: AtomicUsize,
    fails: AtomicBool,
}

impl Store for Leasing {
    fn time(&self) -> Timestamp {
        self.memory.time()
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        self.memory.decide(checks).await
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        self.memory.refund(subject, bands, units).await
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        self.memory.cancel(subject, bands, units, charged).await
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        self.memory.settle(hold, settlement).await
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        self.memory.renew(holds).await
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        self.memory.reset(subject, bands).await
    }

    async fn on_lease(&self, _: Subject<'_>, bands: &[Band]) -> Result<Vec<u64>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            return Err(failure());
        }
        Ok((7..).take(bands.len()).collect())
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        self.memory.reset_rule(rule).await
    }
}

fn failure() -> StoreError {
    StoreError {
        reason: Reason::TIMEOUT,
        message: "no answer".into(),
    }
}

/// Returns the store, and a limiter on it that sees it through all wrappers.
fn limiter() -> (Arc<Leasing>, Limiter<DynStore>) {
    let store = Arc::new(Leasing::default());
    let wrapped = DynStore::new(Arc::clone(&store));
    let rules = RuleSets::from_yaml(RULES).unwrap();
    (store, Limiter::new(rules, wrapped))
}

#[test]
fn a_state_has_the_units_of_each_band_that_are_on_lease() {
    let (store, limiter) = limiter();
    let states = ready(limiter.state("api", "leased", &["ann"])).unwrap();
    let on_lease: Vec<_> = states.iter().map(|state| state.on_lease).collect();
    assert_eq!(on_lease, [7, 8]);
    assert_eq!(store.asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_rule_that_leases_nothing_asks_for_nothing() {
    let (store, limiter) = limiter();
    let states = ready(limiter.state("api", "exact", &["10.0.0.1"])).unwrap();
    assert_eq!(states[0].on_lease, 0);
    let context = RequestContext::builder().ip([10, 0, 0, 1]);
    ready(limiter.explain("api", &context.user("ann").build())).unwrap();
    // Only for the other rule of the explanation.
    assert_eq!(store.asked.load(Ordering::Relaxed), 1);
}

#[test]
fn an_explanation_has_the_lease_of_a_rule_and_the_units_on_lease() {
    let (_, limiter) = limiter();
    let context = RequestContext::builder().ip([10, 0, 0, 1]);
    let explained = ready(limiter.explain("api", &context.user("ann").build())).unwrap();
    let [leased, exact] = &explained.rules[..] else {
        panic!("{explained:?}");
    };
    let lease = Lease::new(Percent::new(20), Duration::from_secs(1));
    assert_eq!((leased.lease, exact.lease), (Some(lease), None));
    let bands = leased.bands.iter().chain(&exact.bands);
    let on_lease: Vec<_> = bands
        .map(|band| (band.before.on_lease, band.after.on_lease))
        .collect();
    assert_eq!(on_lease, [(7, 7), (8, 8), (0, 0)]);
}

#[test]
fn a_failure_to_read_the_units_on_lease_is_one_of_the_state() {
    let (store, limiter) = limiter();
    store.fails.store(true, Ordering::Relaxed);
    let error = ready(limiter.state("api", "leased", &["ann"])).unwrap_err();
    assert_eq!(error, LimiterError::Store(failure()));
    let ann = RequestContext::builder().user("ann").build();
    let error = ready(limiter.explain("api", &ann)).unwrap_err();
    assert_eq!(error, LimiterError::Store(failure()));
}

#[test]
fn a_store_in_memory_has_nothing_on_lease() {
    let rules = RuleSets::from_yaml(RULES).unwrap();
    let limiter = Limiter::new(rules, MemoryStore::default());
    let states = ready(limiter.state("api", "leased", &["ann"])).unwrap();
    assert_eq!((states[0].on_lease, states[1].on_lease), (0, 0));
    assert_eq!((states[0].remaining, states[1].remaining), (10, 100));
}
