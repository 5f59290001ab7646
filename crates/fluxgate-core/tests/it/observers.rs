//! Observers see every decision, and the adapters pass it on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::{
    Decision, Limiter, MemoryStore, Observer, Quota, RequestContext, Rule, RuleSet, TracingObserver,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

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
    let _guard = tracing::subscriber::set_default(Events(log.clone()));
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
        "WARN message=there is no such rule set rule_set=\"missing\"".into(),
    ];
    assert_eq!(log.lines(), expected);
}
