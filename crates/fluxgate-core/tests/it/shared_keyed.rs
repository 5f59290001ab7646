//! Keyed limits on a store that must be awaited, and stores that are chosen at run time.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, DynStore, Limiter, ManualClock, MemoryStore, OnError, Quota, RequestContext, Rule,
    RuleSet, SharedKeyedLimiter, Store,
};

use crate::store_failures::Fragile;
use crate::support::{NAMES, START, instant};

type ManualStore = Arc<MemoryStore<ManualClock>>;

fn store() -> (ManualStore, ManualClock) {
    let clock = ManualClock::new(instant(START));
    let store = MemoryStore::new(clock.clone(), 1_000, Retention::UntilFull);
    (Arc::new(store), clock)
}

#[tokio::test]
async fn a_key_has_its_quotas_in_every_process() {
    let (store, clock) = store();
    let quotas = || [Quota::per_second(2), Quota::per_minute(3)];
    let limiters = [(); 2].map(|()| SharedKeyedLimiter::new("l", quotas(), Arc::clone(&store)));
    let [one, two] = &limiters;
    assert_eq!(one.peek("a").await.unwrap().remaining, 2);
    assert_eq!(one.check("a").await.unwrap().remaining, 1);
    assert_eq!(two.check("a").await.unwrap().remaining, 0);
    let denied = one.check("a").await.unwrap_err();
    assert_eq!(denied.retry_after, Some(Duration::from_millis(500)));
    assert!(denied.remaining == 0 && !denied.failed_closed());
    assert!(two.check_n("a", 4).await.unwrap_err().is_final());
    assert!(two.check([0xff, 0]).await.is_ok(), "any bytes");
    clock.advance(Duration::from_secs(1));
    assert_eq!(two.refund("a", 1).await.unwrap(), 2);
    assert!(two.check_n("a", 2).await.is_ok());
    assert!(one.reset("a").await.unwrap());
    assert!(!one.reset("a").await.unwrap());
    assert_eq!(one.check("a").await.unwrap().remaining, 1);
    let other = SharedKeyedLimiter::new("other", quotas(), store);
    assert_eq!(other.check("a").await.unwrap().remaining, 1, "another name");
}

#[tokio::test]
async fn every_algorithm_limits_keys() {
    for (name, algorithm) in Algorithm::NAMES {
        let (store, _) = store();
        let quota = Quota::per_hour(3).algorithm(algorithm);
        let limiter = SharedKeyedLimiter::new("l", quota, store);
        for left in (0..3).rev() {
            assert_eq!(limiter.check("a").await.unwrap().remaining, left, "{name}");
        }
        assert!(limiter.check("a").await.is_err(), "{name}");
        assert!(limiter.check("b").await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn a_dropped_reservation_returns_its_units() {
    let (store, _) = store();
    let limiter = SharedKeyedLimiter::new("l", Quota::per_minute(1), store);
    let minute = Duration::from_secs(60);
    assert!(limiter.check("a").await.is_ok());
    let first = limiter.reserve("a", minute).await.unwrap();
    assert_eq!(first.delay(), minute);
    assert!(
        limiter.reserve("a", minute).await.is_err(),
        "one is reserved"
    );
    drop(first);
    let second = limiter.reserve("a", minute).await.unwrap();
    assert_eq!(second.into_delay(), minute);
    assert!(limiter.reserve("a", minute).await.is_err(), "it is kept");
}

#[tokio::test(start_paused = true)]
async fn waiting_takes_the_units_when_they_return() {
    // The clock of the store stands still, so each caller waits a second longer.
    let (store, _) = store();
    let limiter = SharedKeyedLimiter::new("l", Quota::per_second(1), store);
    let start = tokio::time::Instant::now();
    for _ in 0..3 {
        limiter.until_ready("a").await;
    }
    let waited = start.elapsed().as_millis();
    assert_eq!(waited / 10 * 10, 3_000, "{waited}");
    assert!(limiter.until_n_ready("a", 2).await.unwrap_err().is_final());
}

#[tokio::test]
async fn a_store_that_fails_is_replaced_as_on_error_says() {
    let limiter = SharedKeyedLimiter::new("l", Quota::per_minute(1), Fragile::broken());
    assert!(limiter.check("a").await.is_ok(), "the fallback store");
    assert!(limiter.check("a").await.is_err());
    let minute = Duration::from_secs(60);
    let reserved = limiter.reserve("a", minute).await.unwrap();
    drop(reserved);
    let again = limiter.reserve("a", minute).await.unwrap();
    assert!(
        again.into_delay() <= minute,
        "the fallback store got its unit back"
    );
    let limiter = limiter.on_error(OnError::Allow);
    assert!(limiter.check("a").await.is_ok());
    assert_eq!(
        limiter.reserve("a", minute).await.unwrap().delay(),
        Duration::ZERO
    );
    let limiter = limiter.on_error(OnError::Deny);
    let denied = limiter.check("a").await.unwrap_err();
    assert!(denied.failed_closed() && !denied.is_final());
    assert_eq!(denied.retry_after, Some(Duration::from_secs(1)));
    assert_eq!(
        denied.to_string(),
        "the store failed, so the call is denied; retry after 1s"
    );
    assert!(limiter.refund("a", 1).await.is_err());
    assert!(limiter.reset("a").await.is_err());
}

fn rules(algorithm: Algorithm) -> RuleSet {
    let quota = Quota::per_minute(2).algorithm(algorithm);
    let rule = Rule::new("r").per_user().band(quota);
    let rule = rule.wait_up_to(Duration::from_secs(60));
    RuleSet::builder("s").rule(rule).build().unwrap()
}

#[test]
fn a_store_can_be_chosen_at_run_time() {
    for (name, (_, algorithm)) in NAMES.iter().zip(Algorithm::NAMES) {
        let (plain, _) = store();
        let (erased, _) = store();
        let plain = Limiter::new(rules(algorithm), plain);
        let erased = Limiter::new(rules(algorithm), DynStore::from(erased));
        let ann = RequestContext::builder().user("ann").build();
        for _ in 0..4 {
            let (a, b) = (plain.check_sync("s", &ann), ready(erased.check("s", &ann)));
            let fields = |decision: &fluxgate_core::Decision| {
                let outcome = decision.outcome().name();
                (
                    outcome,
                    decision.remaining(),
                    decision.delay(),
                    decision.retry_after(),
                )
            };
            assert_eq!(fields(&a), fields(&b), "{name}");
        }
        let (a, b) = (
            plain.refund("s", "r", &["ann"], 1),
            erased.refund("s", "r", &["ann"], 1),
        );
        assert_eq!(ready(a).unwrap(), ready(b).unwrap());
        let (a, b) = (plain.reset_rule("s", "r"), erased.reset_rule("s", "r"));
        assert_eq!(ready(a).unwrap(), ready(b).unwrap());
        assert!(erased.store().answers_at_once());
    }
    let broken = Limiter::new(
        rules(Algorithm::TokenBucket),
        DynStore::new(Fragile::broken()),
    );
    let decision = ready(broken.check("s", &RequestContext::default()));
    assert_eq!(decision.outcome().name(), "fallback");
    assert!(!broken.store().answers_at_once());
}

#[test]
fn a_dropped_reservation_of_a_request_returns_its_units() {
    let (store, _) = store();
    let limiter = Limiter::new(rules(Algorithm::TokenBucket), store);
    let ann = RequestContext::builder().user("ann").cost(2).build();
    let reserve = || ready(limiter.reserve("s", &ann)).map_err(Box::new);
    assert_eq!(reserve().unwrap().into_delay(), Duration::ZERO);
    let second = reserve().unwrap();
    assert_eq!(second.delay(), Duration::from_secs(60));
    assert_eq!(second.get().outcome().name(), "allowed");
    assert!(!reserve().unwrap_err().allowed());
    drop(second);
    assert_eq!(reserve().unwrap().into_delay(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_units() {
    let waiting = Algorithm::NAMES.into_iter();
    for (name, algorithm) in waiting.filter(|(name, _)| *name != "concurrency") {
        let (store, _) = store();
        let limiter = Limiter::new(rules(algorithm), store);
        let ann = RequestContext::builder().user("ann").cost(2).build();
        assert!(limiter.check("s", &ann).await.allowed(), "{name}");
        let start = tokio::time::Instant::now();
        let waited = limiter.until_ready("s", &ann).await;
        // A sliding window needs two minutes, which is longer than the rule allows.
        let minutes = u64::from(algorithm != Algorithm::SlidingWindow);
        assert_eq!(start.elapsed().as_secs(), 60 * minutes, "{name}");
        // The clock of the store stands still while that of the runtime runs: a bucket has
        // reserved its units, the others are asked again too early.
        assert_eq!(waited.is_ok(), algorithm.is_bucket(), "{name}");
        let three = RequestContext::builder().user("ann").cost(3).build();
        assert_eq!(
            limiter
                .until_ready("s", &three)
                .await
                .unwrap_err()
                .retry_after(),
            None
        );
    }
}
