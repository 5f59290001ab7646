//! What several tests need: stores that are patient, and eyes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::{Limiter, Observer, OnError, Reason, RequestContext, RuleSets, StoreError};
use fluxgate_redis::{RedisStore, RedisStoreBuilder};
use tokio::time::Instant;

/// How soon after a fault's end everything must be as before.
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);

/// A store that waits long: a loaded machine is no fault of it.
pub(crate) fn patient(urls: impl IntoIterator<Item = String>) -> RedisStoreBuilder {
    RedisStore::builder(urls).deadline(Duration::from_secs(10))
}

pub(crate) fn rules(yaml: &str) -> RuleSets {
    RuleSets::from_yaml(yaml).unwrap()
}

pub(crate) fn user(name: &str) -> RequestContext<'_> {
    RequestContext::builder().user(name).build()
}

/// Remembers why a store failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures(Arc<Mutex<Vec<StoreError>>>);

impl Failures {
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        let errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        errors.iter().map(|error| error.reason).collect()
    }
}

impl Observer for Failures {
    fn store_failed(&self, error: &StoreError, _: OnError) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        errors.push(error.clone());
    }
}

/// A limiter and what it is told of its store.
pub(crate) fn watched(rules: RuleSets, store: RedisStore) -> (Arc<Limiter<RedisStore>>, Failures) {
    let failures = Failures::default();
    let limiter = Limiter::new(rules, store).observed_by(failures.clone());
    (Arc::new(limiter), failures)
}

/// Units that an identity has used of the first band of a rule.
pub(crate) async fn used(limiter: &Limiter<RedisStore>, rule: &str, identity: &[&str]) -> u64 {
    let states = limiter.state("api", rule, identity).await.unwrap();
    states[0].band.limit().capacity() - states[0].remaining
}

/// Looks again and again until it is true; tells how long that took.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !look().await {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}
