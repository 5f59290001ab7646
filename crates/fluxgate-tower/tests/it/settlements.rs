//! Settlements in the background, on a store that fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Charged, Checks, Micros, Reason, Subject, Timestamp, Verdicts};
use fluxgate_core::{
    Band, HoldId, Limiter, MemoryStore, RequestContext, Settled, Settlement, Store, StoreError,
};
use fluxgate_tower::RequestHold;
use tokio::time::{Instant, sleep};

use crate::support::{TokioClock, set_of};

const RULES: &str = "{ id: slots, scope: global, algorithm: concurrency, hold: 30s, bands: [ { capacity: 1 } ] }, \
     { id: tokens, scope: global, algorithm: fixed_window, cost: 'attr:tokens', bands: [ { capacity: 100, window: 1h } ] }";

/// A store whose first settlements fail.
#[derive(Debug)]
struct Unsettled {
    store: MemoryStore<TokioClock>,
    /// How many settlements still fail.
    failures: AtomicU32,
    settlements: AtomicU32,
    renewals: AtomicU32,
}

impl Store for Unsettled {
    fn time(&self) -> Timestamp {
        self.store.time()
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        self.store.decide(checks).await
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        self.store.refund(subject, bands, units).await
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        self.store.cancel(subject, bands, units, charged).await
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        self.settlements.fetch_add(1, Ordering::Relaxed);
        if self.failures.load(Ordering::Relaxed) == 0 {
            return self.store.settle(hold, settlement).await;
        }
        self.failures.fetch_sub(1, Ordering::Relaxed);
        Err(StoreError {
            reason: Reason::TIMEOUT,
            message: "no answer".into(),
        })
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.store.renew(holds).await
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        self.store.reset(subject, bands).await
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        self.store.reset_rule(rule).await
    }
}

/// Reserves 40 tokens and a slot, and settles them with 15 while the first settlements fail.
async fn settle(failures: u32) -> (Limiter<Unsettled>, HoldId) {
    let store = Unsettled {
        store: MemoryStore::new(TokioClock::new(), 1_000, Retention::UntilFull),
        failures: AtomicU32::new(failures),
        settlements: AtomicU32::default(),
        renewals: AtomicU32::default(),
    };
    let limiter = Limiter::new(set_of(RULES), store);
    let call = RequestContext::builder()
        .attribute("tokens", "40")
        .hold(Duration::from_secs(60))
        .build();
    let decision = limiter.check("s", &call).await;
    let hold = RequestHold::new(limiter.keep_hold(&decision).unwrap());
    hold.settle_in_background([("tokens", 15)]);
    (limiter, decision.hold().unwrap())
}

/// Returns the tokens and the slots that are left.
async fn left(limiter: &Limiter<Unsettled>) -> (u64, u64) {
    let tokens = limiter.state("s", "tokens", &[]).await.unwrap()[0].remaining;
    let slots = limiter.state("s", "slots", &[]).await.unwrap()[0].remaining;
    (tokens, slots)
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_fails_is_tried_again() {
    for (failures, pause) in [(1, 101), (2, 1_101), (3, 6_101)] {
        let began = Instant::now();
        let (limiter, _) = settle(failures).await;
        sleep(Duration::from_millis(pause - 10)).await;
        assert_eq!(left(&limiter).await, (60, 0), "{failures}");
        sleep(Duration::from_millis(20)).await;
        assert_eq!(left(&limiter).await, (85, 1), "{:?}", began.elapsed());
        let settlements = limiter.store().settlements.load(Ordering::Relaxed);
        assert_eq!(settlements, failures + 1);
    }
}

/// The process neither renews it nor keeps anything of it.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_settled_stays_charged_and_its_slots_expire() {
    let (limiter, hold) = settle(u32::MAX).await;
    sleep(Duration::from_secs(29)).await;
    assert_eq!(limiter.kept_holds(), 0);
    assert_eq!(left(&limiter).await, (60, 0));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(left(&limiter).await, (60, 1), "the slot has expired");
    let store = limiter.store();
    // Four times as used, and once as reserved to free the slot.
    assert_eq!(store.settlements.load(Ordering::Relaxed), 5);
    assert_eq!(store.renewals.load(Ordering::Relaxed), 0);
    store.failures.store(0, Ordering::Relaxed);
    let late = limiter.settle(hold, Settlement::Cost(15)).await.unwrap();
    assert_eq!(late, None, "the hold has expired");
    assert_eq!(left(&limiter).await, (60, 1));
}
