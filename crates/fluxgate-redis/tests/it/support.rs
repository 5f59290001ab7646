//! A limiter on a store, and a record of the errors of the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{
    Decision, Limiter, Observer, OnError, Outcome, RequestContext, RuleSets, StoreError,
};
use fluxgate_redis::{RedisStore, RedisStoreBuilder, Topology};
use fluxgate_testkit::{Stopwatch, WAIT_TIMEOUT};
use tokio::time::{Instant, sleep};

/// A deadline that only a fault can miss, even on a loaded machine.
pub(crate) const GENEROUS: Duration = Duration::from_secs(10);
/// "By itself within 2 s of the fault's end."
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);
/// How late a task may run on an overloaded machine.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

/// One rule of one band for each user, in the set `api`.
pub(crate) fn one_band(on_error: &str, algorithm: &str, capacity: u64, window: &str) -> RuleSets {
    let rules = format!(
        "rule_sets: {{ api: {{ on_error: {on_error}, rules: [ {{ id: r, scope: per_user, \
         algorithm: {algorithm}, bands: [ {{ capacity: {capacity}, window: {window} }} ] }} ] }} }}"
    );
    self::rules(&rules)
}

/// A store on one server, without detection of a cluster.
pub(crate) fn store_at(url: impl Into<String>) -> RedisStoreBuilder {
    let url: String = url.into();
    RedisStore::builder([url])
        .topology(Topology::Standalone)
        .deadline(GENEROUS)
}

pub(crate) const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
];

/// A store on these servers, with detection of a cluster.
pub(crate) fn patient(urls: impl IntoIterator<Item = String>) -> RedisStoreBuilder {
    RedisStore::builder(urls).deadline(GENEROUS)
}

/// Returns whether long runs are wanted: `scripts/test --long`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("FLUXGATE_LONG").is_some()
}

/// Returns how many random cases to run of what is usual. The seeds are fixed, so the usual
/// ones find what a change breaks, and a long run looks further.
pub(crate) fn cases(usual: u32) -> u32 {
    if is_long() { 15 * usual } else { usual }
}

pub(crate) fn rules(yaml: &str) -> RuleSets {
    RuleSets::from_yaml(yaml).unwrap()
}

pub(crate) fn user(name: &str) -> RequestContext<'_> {
    RequestContext::builder().user(name).build()
}

/// Returns a limiter and the record of its store's errors.
pub(crate) fn with_error_log(
    rules: RuleSets,
    store: RedisStore,
) -> (Limiter<RedisStore>, ErrorLog) {
    let errors = ErrorLog::default();
    let limiter = Limiter::builder(rules, store)
        .observer(errors.clone())
        .build();
    (limiter, errors)
}

/// Returns the units that an identity has used of the first band of a rule.
pub(crate) async fn used(limiter: &Limiter<RedisStore>, rule: &str, identity: &[&str]) -> u64 {
    let states = limiter.state("api", rule, identity).await.unwrap();
    states[0].band.limit().capacity() - states[0].remaining
}

/// The errors that an observer received, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorLog(Arc<Mutex<Vec<StoreError>>>);

impl ErrorLog {
    /// Returns all errors so far.
    pub(crate) fn all(&self) -> Vec<StoreError> {
        let errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        errors.clone()
    }

    /// Returns the reasons of all errors so far.
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        self.all().iter().map(|error| error.reason).collect()
    }

    /// Returns the labels, each once, in the order of their first error.
    pub(crate) fn labels(&self) -> Vec<&'static str> {
        let mut labels = Vec::new();
        for error in self.all() {
            if !labels.contains(&error.reason.name()) {
                labels.push(error.reason.name());
            }
        }
        labels
    }

    /// Returns how many errors have this reason.
    pub(crate) fn count(&self, reason: Reason) -> usize {
        let errors = self.all();
        errors.iter().filter(|error| error.reason == reason).count()
    }

    pub(crate) fn clear(&self) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        errors.clear();
    }
}

impl Observer for ErrorLog {
    fn store_failed(&self, error: &StoreError, _: Option<OnError>) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        errors.push(error.clone());
    }
}

/// A limiter on a store, shared by the tasks of a test.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) limiter: Limiter<RedisStore>,
    pub(crate) errors: ErrorLog,
}

impl Bench {
    pub(crate) fn new(rules: RuleSets, store: RedisStoreBuilder) -> Self {
        let (limiter, errors) = with_error_log(rules, store.build().unwrap());
        Self { limiter, errors }
    }

    pub(crate) fn store(&self) -> &RedisStore {
        self.limiter.store()
    }

    /// Decides one request of a user.
    pub(crate) async fn check(&self, user: &str) -> Decision {
        self.check_cost(user, 1).await
    }

    pub(crate) async fn check_cost(&self, user: &str, cost: u64) -> Decision {
        let context = RequestContext::builder().user(user).cost(cost).build();
        self.limiter.check("api", &context).await
    }

    /// Returns what a user has left.
    pub(crate) async fn left(&self, user: &str) -> u64 {
        let state = self.limiter.state("api", "r", &[user]).await;
        state.unwrap()[0].remaining
    }

    /// Sends requests of this user, who must have units left, until the store
    /// decides again. Returns how long that took, by a [`Stopwatch`].
    #[track_caller]
    pub(crate) fn recovery<'b>(
        &'b self,
        user: &'b str,
    ) -> impl Future<Output = Duration> + Send + 'b {
        let place = std::panic::Location::caller();
        async move {
            let (start, watch) = (Instant::now(), Stopwatch::start());
            while self.check(user).await.outcome() != Outcome::Allowed {
                let waited = start.elapsed();
                let errors = self.errors.all();
                let last = errors.last();
                assert!(waited < WAIT_TIMEOUT, "{place}: no recovery, {last:?}");
                sleep(Duration::from_millis(5)).await;
            }
            watch.elapsed()
        }
    }

    /// Like [`Bench::recovery`], but checks the time.
    #[track_caller]
    pub(crate) fn recovers<'b>(&'b self, user: &'b str) -> impl Future<Output = ()> + Send + 'b {
        let recovery = self.recovery(user);
        let place = std::panic::Location::caller();
        async move {
            let took = recovery.await;
            assert!(took < RECOVERY + SLACK, "{place}: recovered after {took:?}");
        }
    }
}

/// Polls a condition until it holds, and lets other tasks run. Returns how long
/// that took, by a [`Stopwatch`].
#[track_caller]
pub(crate) fn until_async(
    what: &str,
    mut look: impl AsyncFnMut() -> bool,
) -> impl Future<Output = Duration> {
    let place = std::panic::Location::caller();
    async move {
        let (start, watch) = (Instant::now(), Stopwatch::start());
        while !look().await {
            assert!(start.elapsed() < WAIT_TIMEOUT, "{place}: timed out: {what}");
            sleep(Duration::from_millis(5)).await;
        }
        watch.elapsed()
    }
}

/// Like [`until_async`], for a condition that needs no await.
#[track_caller]
pub(crate) fn until(what: &str, mut look: impl FnMut() -> bool) -> impl Future<Output = Duration> {
    until_async(what, async move || look())
}
