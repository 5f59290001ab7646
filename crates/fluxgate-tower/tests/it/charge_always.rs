//! Rules that charge in any case meet requests that wait: such a rule charges a request once,
//! however often it is decided.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::store::{
    Charged, Checks, HoldId, Micros, Settled, Settlement, Store, Subject, Timestamp, Verdicts,
};
use fluxgate_core::{Band, Limiter, MemoryStore, RequestContext, StoreError};
use fluxgate_tower::RateLimitLayer;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tower::Layer;

use crate::support::{Events, Inner, TokioClock, get, limiter, send, set_of};

/// Charges in any case, and has room for everything.
const LATE: &str =
    "{ id: late, scope: global, charge: always, algorithm: fixed_window, bands: [ 100/30d ] }";

async fn used<S: Store + 'static>(limiter: &Limiter<S>) -> u64 {
    100 - limiter.state("s", "late", &[]).await.unwrap()[0].remaining
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_window_is_charged_once() {
    let window = "{ id: w, scope: global, algorithm: fixed_window, on_exceed: wait, max_wait: 3s, bands: [ 1/1s ] }";
    let limiter = limiter(&format!("{window}, {LATE}"));
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let service = layer.layer(Inner::new(&Events::default()));
    assert_eq!(send(&service, get("/x")).await.status, 200);
    assert_eq!(send(&service, get("/x")).await.status, 200, "after a wait");
    assert_eq!(used(&limiter).await, 2);
    // The same without a filter.
    let context = RequestContext::default();
    assert!(limiter.until_ready("s", &context).await.is_ok());
    assert_eq!(used(&limiter).await, 3);
}

/// It passes by the units that it has paid with the denial.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_decided_again_has_the_last_unit_already() {
    let limiter = limiter(
        "{ id: w, scope: global, algorithm: fixed_window, on_exceed: wait, max_wait: 3s, bands: [ 1/1s ] }, \
         { id: late, scope: global, charge: always, algorithm: fixed_window, bands: [ 2/30d ] }",
    );
    let context = RequestContext::default();
    for _ in 0..2 {
        assert!(limiter.until_ready("s", &context).await.is_ok());
    }
    assert!(limiter.until_ready("s", &context).await.is_err());
}

/// A client that leaves does not get back what is charged in any case.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cancelled_stays_charged_in_any_case() {
    let limiter = limiter(&format!(
        "{{ id: q, scope: global, on_exceed: wait, max_wait: 1h, bands: [ 1/1m ] }}, {LATE}"
    ));
    let context = RequestContext::default();
    drop(limiter.reserve("s", &context).await.unwrap());
    let waits = limiter.reserve("s", &context).await.unwrap();
    assert_eq!(waits.delay(), Duration::from_secs(60));
    drop(waits);
    assert_eq!(used(&limiter).await, 2);
    let queue = limiter.state("s", "q", &[]).await.unwrap();
    assert_eq!(
        queue[0].reset_after,
        Duration::from_secs(60),
        "its own units returned"
    );
}

/// A store that answers when it may.
#[derive(Debug)]
struct Gated {
    store: MemoryStore<TokioClock>,
    gate: Arc<Semaphore>,
}

impl Store for Gated {
    fn time(&self) -> Timestamp {
        self.store.time()
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        self.gate.acquire().await.unwrap().forget();
        self.store.decide(checks).await
    }

    async fn refund(&self, _: Subject<'_>, _: &[Band], _: u64) -> Result<Verdicts, StoreError> {
        unreachable!("nothing is refunded")
    }

    async fn cancel(
        &self,
        _: Subject<'_>,
        _: &[Band],
        _: u64,
        _: &[Charged],
    ) -> Result<(), StoreError> {
        unreachable!("nothing is cancelled")
    }

    async fn settle(&self, _: HoldId, _: Settlement<'_>) -> Result<Option<Settled>, StoreError> {
        unreachable!("nothing is held")
    }

    async fn renew(&self, _: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        unreachable!("nothing is held")
    }

    async fn reset(&self, _: Subject<'_>, _: &[Band]) -> Result<u64, StoreError> {
        unreachable!("nothing is reset")
    }

    async fn reset_rule(&self, _: Subject<'_>) -> Result<u64, StoreError> {
        unreachable!("nothing is reset")
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gets_its_permit_late_is_charged_once() {
    let gate = Arc::new(Semaphore::new(0));
    let store = Gated {
        store: MemoryStore::new(TokioClock::new(), 1_000, Retention::Forever),
        gate: Arc::clone(&gate),
    };
    let queue = "{ id: q, scope: global, on_exceed: wait, max_wait: 1h, bands: [ 1/1s ] }";
    let limiter = Limiter::new(set_of(&format!("{queue}, {LATE}")), store);
    let layer = RateLimitLayer::new(limiter.clone())
        .rule_set("s")
        .max_concurrent_waits(1);
    let service = layer.layer(Inner::new(&Events::default()));
    let request = |path: &'static str| {
        let service = service.clone();
        tokio::spawn(async move { send(&service, get(path)).await.status })
    };
    // The first one has the permit while the store decides.
    let first = request("/first");
    yield_now().await;
    let second = request("/second");
    yield_now().await;
    gate.add_permits(1);
    assert_eq!(first.await.unwrap(), 200);
    // The second one is denied without a permit, and decided again with the one that is free.
    gate.add_permits(100);
    assert_eq!(second.await.unwrap(), 200);
    assert_eq!(used(&limiter).await, 2);
}
