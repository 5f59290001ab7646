//! Observers see every decision, and the adapters pass it on.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{
    Decision, Limiter, MemoryStore, MetricsObserver, Observer, OnError, OnMissingRuleSet, Quota,
    RequestContext, Rule, RuleSet, SharedKeyedLimiter, StoreError, TracingObserver, WaitRefusal,
};
use metrics::{KeyName, SharedString, Unit};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::store_failures::Fragile;

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Log {
    fn decided(&self, decision: &Decision, took: Duration) {
        assert!(took < Duration::from_secs(60));
        let rule = decision.rule().map_or("-", |rule| rule.id());
        self.add(format!("{rule} {}", decision.outcome().name()));
    }

    fn store_failed(&self, error: &StoreError, _: Option<OnError>) {
        self.add(error.to_string());
    }
}

fn limiter(observer: impl Observer + 'static) -> Limiter {
    let rule = Rule::new("r").per_user().band(Quota::per_hour(2));
    let set = RuleSet::builder("s").rule(rule).build().unwrap();
    Limiter::builder(set, MemoryStore::default())
        .observer(observer)
        .observer(Log::default())
        .build()
}

#[tokio::test]
async fn every_decision_is_observed_and_peeks_are_not() {
    let log = Log::default();
    let limiter = limiter(log.clone());
    let ann = RequestContext::builder().user("ann").build();
    assert!(limiter.peek("s", &ann).await.allowed());
    assert!(limiter.peek_sync("s", &ann).allowed());
    assert_eq!(log.lines(), [""; 0]);
    assert!(limiter.check("s", &ann).await.allowed());
    assert!(limiter.check_sync("s", &ann).allowed());
    assert!(limiter.reserve("s", &ann).await.is_err());
    let decisions = limiter.check_all("s", &[ann.clone(), ann]).await;
    assert_eq!(decisions.len(), 2);
    assert!(
        !limiter
            .consume("s", "r", &["ann"], None)
            .await
            .unwrap()
            .allowed()
    );
    let denied = "r denied";
    assert_eq!(
        log.lines(),
        ["r allowed", "r allowed", denied, denied, denied, denied]
    );
}

/// Records the events of this thread until the guard is dropped.
fn record_events(log: &Log) -> DefaultGuard {
    // With a single subscriber, tracing decides by the thread that reaches an event first
    // whether anybody wants it, and the threads of other tests have no subscriber.
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
    LazyLock::force(&ANOTHER);
    tracing::subscriber::set_default(Events(log.clone()))
}

/// A subscriber that writes the fields of events, in their order.
struct Events(Log);

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "fluxgate"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.add(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() != "took" {
            self.0 += &format!(" {}={value:?}", field.name());
        }
    }
}

#[test]
fn decisions_are_tracing_events() {
    let log = Log::default();
    let _guard = record_events(&log);
    let limiter = limiter(TracingObserver::default());
    let ann = RequestContext::builder().user("ann").build();
    for _ in 0..3 {
        let _ = limiter.check_sync("s", &ann);
    }
    let _ = limiter.check_sync("missing", &ann);
    let decided = |level: &str, outcome: &str, left: u64| {
        format!(
            "{level} message=decided rule_set=\"s\" rule=\"r\" band=\"b0\" \
             outcome={outcome:?} remaining={left}"
        )
    };
    let expected = [
        decided("DEBUG", "allowed", 1),
        decided("DEBUG", "allowed", 0),
        decided("INFO", "denied", 0),
        "WARN message=there is no such rule set rule_set=\"missing\" \
         requests=\"allowed\""
            .into(),
    ];
    assert_eq!(log.lines(), expected);
}

#[test]
fn a_limiter_without_observers_logs_each_missing_rule_set_once() {
    let log = Log::default();
    let _guard = record_events(&log);
    let rule = Rule::new("r").per_user().band(Quota::per_hour(2));
    let set = RuleSet::builder("api-limits").rule(rule).build().unwrap();
    let limiter = Limiter::builder(set, MemoryStore::default())
        .on_missing_rule_set(OnMissingRuleSet::Deny)
        .build();
    let ann = RequestContext::builder().user("ann").build();
    let check = |name: &str| assert!(!limiter.check_sync(name, &ann).allowed());
    for _ in 0..3 {
        check("api-limit");
    }
    let missing = "WARN message=there is no such rule set";
    let expected =
        format!("{missing} rule_set=\"api-limit\" did_you_mean=\"api-limits\" requests=\"denied\"");
    assert_eq!(log.lines(), [expected]);
    // The names may come from clients: neither the memory nor the log grows without bound.
    for name in 0..2_000 {
        check(&format!("random-{name}"));
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 1_000);
    assert!(lines[998].starts_with(missing), "{lines:?}");
    assert_eq!(
        lines[999],
        "WARN message=further missing rule sets are not logged"
    );
}

#[tokio::test]
async fn an_outage_of_the_store_is_logged_once_and_every_failure_is_observed() {
    let log = Log::default();
    let _guard = record_events(&log);
    let (store, failures) = (Arc::new(Fragile::broken()), Log::default());
    let quota = Quota::per_hour(100);
    let shared = SharedKeyedLimiter::new("l", quota, Arc::clone(&store)).observer(failures.clone());
    let rule = Rule::new("r").per_user().band(quota);
    let set = RuleSet::builder("s").on_error(OnError::Deny).rule(rule);
    let limiter = Limiter::new(set.build().unwrap(), Arc::clone(&store));
    let ann = RequestContext::builder().user("ann").build();
    for _ in 0..3 {
        assert!(shared.check("a").await.is_ok());
        assert!(!limiter.check("s", &ann).await.allowed());
    }
    let outage = |requests: &str| {
        format!("WARN message=the store fails error=timeout: no answer requests={requests:?}")
    };
    assert_eq!(
        log.lines(),
        [outage("limited by this process alone"), outage("denied")]
    );
    assert_eq!(failures.lines(), ["timeout: no answer"; 3]);

    store.set_broken(false);
    for _ in 0..2 {
        assert!(shared.check("a").await.is_ok());
        assert!(limiter.check("s", &ann).await.allowed());
    }
    assert_eq!(log.lines(), ["INFO message=the store answers again"; 2]);
    // A store that fails now and then must not fill the log.
    store.set_broken(true);
    assert!(shared.check("a").await.is_ok());
    assert_eq!(log.lines(), [""; 0]);
    assert_eq!(failures.lines().len(), 1);
}

/// A recorder that adds up counters and gauges by their names and labels.
#[derive(Clone, Debug, Default)]
struct Totals(Arc<Mutex<BTreeMap<String, f64>>>);

impl Totals {
    fn get(&self, name: &str) -> f64 {
        self.0
            .lock()
            .unwrap()
            .get(name)
            .copied()
            .unwrap_or_default()
    }

    fn of(&self, key: &metrics::Key) -> Arc<Total> {
        let labels = key
            .labels()
            .map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        Arc::new(Total(self.clone(), name))
    }
}

struct Total(Totals, String);

#[expect(clippy::float_arithmetic, reason = "gauges of the facade are floats")]
impl Total {
    fn add(&self, value: f64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
    }
}

impl metrics::CounterFn for Total {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

#[expect(clippy::float_arithmetic, reason = "gauges of the facade are floats")]
impl metrics::GaugeFn for Total {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {}
}

impl metrics::Recorder for Totals {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(self.of(key))
    }

    fn register_histogram(
        &self,
        _: &metrics::Key,
        _: &metrics::Metadata<'_>,
    ) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

#[test]
fn waits_and_store_failures_are_metrics() {
    let totals = Totals::default();
    metrics::with_local_recorder(&totals, || {
        let observer = MetricsObserver::default();
        let error = StoreError {
            reason: Reason::TIMEOUT,
            message: "no answer".into(),
        };
        for on_error in [None, Some(OnError::Allow), Some(OnError::Deny)] {
            observer.store_failed(&error, on_error);
        }
    });
    assert_eq!(
        totals.get("fluxgate_store_errors_total reason=timeout"),
        3.0
    );
    assert_eq!(totals.get("fluxgate_failclosed_total reason=timeout"), 1.0);

    let rule = Rule::new("r").global().band(Quota::per_minute(1));
    let rule = rule.wait_up_to(Duration::from_secs(90));
    let set = RuleSet::builder("s").rule(rule).build().unwrap();
    let limiter = Limiter::builder(set, MemoryStore::default())
        .observer(MetricsObserver::default())
        .build();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&totals, || {
        runtime.block_on(async {
            let context = RequestContext::default();
            assert!(limiter.until_ready("s", &context).await.is_ok());
            assert_eq!(totals.get("fluxgate_waiting"), 0.0, "it did not wait");
            let mut waits = Box::pin(limiter.until_ready("s", &context));
            tokio::select! {
                biased;
                _ = &mut waits => unreachable!("a minute has not passed"),
                () = tokio::task::yield_now() => {}
            }
            assert_eq!(totals.get("fluxgate_waiting"), 1.0);
            let denied = limiter.until_ready("s", &context).await.unwrap_err();
            assert_eq!(denied.wait_refusal(), Some(WaitRefusal::TooLong));
            assert!(waits.await.is_ok());
        });
    });
    assert_eq!(totals.get("fluxgate_waiting"), 0.0);
    assert_eq!(
        totals.get("fluxgate_waits_refused_total reason=too_long"),
        1.0
    );
    assert_eq!(
        totals.get("fluxgate_waits_refused_total reason=too_many"),
        0.0
    );
}
