//! Stores that fail and rule sets that do not exist.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fluxgate_core::memory::Retention;
use fluxgate_core::store::{
    Charged, Checks, HoldId, Micros, Reason, Retry, Settled, Settlement, Subject, Timestamp,
    Verdicts,
};
use fluxgate_core::task::ready;
use fluxgate_core::{
    AdHocKey, Algorithm, Band, Limit, Limiter, LimiterBuilder, LimiterError, ManualClock,
    MemoryStore, Observer, OnError, RequestContext, Store, StoreError,
};

use crate::support::{Gate, SECOND, START, fields, instant, parse, retry, set_of};

/// A store that a test can break.
#[derive(Debug)]
pub(crate) struct Fragile {
    store: MemoryStore<ManualClock>,
    broken: Arc<AtomicBool>,
}

impl Fragile {
    /// Breaks or repairs the store.
    pub(crate) fn set_broken(&self, is_broken: bool) {
        self.broken.store(is_broken, Ordering::Relaxed);
    }

    /// Creates a store that fails.
    pub(crate) fn broken() -> Self {
        Self {
            store: MemoryStore::with_clock(ManualClock::default()),
            broken: Arc::new(AtomicBool::new(true)),
        }
    }

    fn working(&self) -> Result<&MemoryStore<ManualClock>, StoreError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(StoreError {
                reason: Reason::TIMEOUT,
                message: "no answer".into(),
            });
        }
        Ok(&self.store)
    }
}

impl Store for Fragile {
    fn time(&self) -> Timestamp {
        self.store.time()
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        self.working()?.decide(checks).await
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        self.working()?.refund(subject, bands, units).await
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        self.working()?.cancel(subject, bands, units, charged).await
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        let working = self.working();
        // The next may succeed.
        self.broken.store(false, Ordering::Relaxed);
        working?.settle(hold, settlement).await
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        self.working()?.renew(holds).await
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        self.working()?.reset(subject, bands).await
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        let working = self.working();
        // The next may succeed.
        self.broken.store(false, Ordering::Relaxed);
        working?.reset_rule(rule).await
    }
}

/// Records the events.
#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: String) {
        self.0.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Notes {
    fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        self.add(match on_error {
            Some(on_error) => format!("{error}: {on_error:?}"),
            None => error.to_string(),
        });
    }

    fn rule_set_missing(&self, name: &str) -> bool {
        self.add(name.into());
        name != "not-passed-on"
    }
}

/// A limiter with two units an hour, the switch that breaks its store, and the recorder.
fn limiter(on_error: &str) -> (Limiter<Fragile>, Arc<AtomicBool>, Notes) {
    let (builder, broken, notes) = builder(on_error);
    (builder.build(), broken, notes)
}

fn builder(on_error: &str) -> (LimiterBuilder<Fragile>, Arc<AtomicBool>, Notes) {
    let rules = format!(
        "rule_sets: {{ s: {{ {on_error} rules: [
            {{ id: r, scope: global, match: {{ not_path: [\"/free\"] }}, bands: [{{ capacity: 2, window: 1h }}] }}] }} }}"
    );
    let (broken, notes) = (Arc::new(AtomicBool::new(false)), Notes::default());
    let store = Fragile {
        store: MemoryStore::new(ManualClock::new(instant(START)), 100, Retention::UntilFull),
        broken: broken.clone(),
    };
    let builder = Limiter::builder(parse(&rules), store).observer(notes.clone());
    (builder, broken, notes)
}

fn check(limiter: &Limiter<Fragile>) -> crate::support::DecisionFields {
    fields(&ready(limiter.check("s", &RequestContext::default())))
}

#[test]
fn a_failed_peek_is_not_reported_as_a_decision() {
    let (limiter, broken, notes) = limiter("on_error: deny,");
    broken.store(true, Ordering::Relaxed);
    let peeked = ready(limiter.peek("s", &RequestContext::default()));
    assert_eq!(fields(&peeked).outcome, "failed_closed");
    assert_eq!(notes.take(), ["timeout: no answer"]);
    check(&limiter);
    assert_eq!(notes.take(), ["timeout: no answer: Deny"]);
}

#[test]
fn on_error_allow_fails_open() {
    let (limiter, broken, notes) = limiter("on_error: allow,");
    broken.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        let shown = check(&limiter);
        assert!(shown.allowed);
        assert_eq!((shown.outcome, shown.retry), ("failed_open", Some(0)));
        assert_eq!((shown.rule, shown.remaining), (None, None));
    }
    assert_eq!(notes.take(), ["timeout: no answer: Allow"; 5]);
}

#[test]
fn on_error_deny_fails_closed_for_a_second() {
    let (limiter, broken, notes) = limiter("on_error: deny,");
    assert_eq!(check(&limiter).outcome, "allowed");
    broken.store(true, Ordering::Relaxed);
    let shown = check(&limiter);
    assert!(!shown.allowed);
    assert_eq!(
        (shown.outcome, shown.retry),
        ("failed_closed", Some(SECOND))
    );
    assert_eq!(notes.take().len(), 1);
    broken.store(false, Ordering::Relaxed);
    assert_eq!(check(&limiter).outcome, "allowed");
    assert_eq!(check(&limiter).outcome, "denied");
    assert!(notes.take().is_empty());
}

#[test]
fn on_error_local_decides_by_the_same_rules() {
    for on_error in ["", "on_error: local,"] {
        let (limiter, broken, notes) = limiter(on_error);
        broken.store(true, Ordering::Relaxed);
        let shown: Vec<_> = (0..3).map(|_| check(&limiter)).collect();
        assert!(shown.iter().all(|it| it.outcome == "fallback"));
        let allowed: Vec<_> = shown.iter().map(|it| it.allowed).collect();
        assert_eq!(allowed, [true, true, false]);
        // A full decision except for the outcome.
        assert_eq!(shown[1].remaining, Some(0));
        assert_eq!(shown[2].violated, ["r/b0"]);
        assert!(shown[2].retry.is_some_and(|wait| wait > 0));
        assert_eq!(notes.take(), ["timeout: no answer: Local"; 3]);
        broken.store(false, Ordering::Relaxed);
        assert_eq!(check(&limiter).outcome, "allowed");
    }
}

const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);

fn held() -> RequestContext<'static> {
    RequestContext::builder().hold(MINUTE).build()
}

/// Returns what the store has left of the two units.
fn left(limiter: &Limiter<Fragile>) -> u64 {
    ready(limiter.state("s", "r", &[])).unwrap()[0].remaining
}

#[tokio::test]
async fn a_settlement_that_fails_leaves_the_charge_as_reserved() {
    let (limiter, broken, _) = limiter("");
    let hold = limiter.hold("s", &held()).await.unwrap();
    broken.store(true, Ordering::Relaxed);
    assert!(hold.settle(Settlement::Cost(1)).await.is_err());
    // The hold has ended nevertheless, and its unit stays charged.
    assert_eq!((limiter.store().store.holds(), left(&limiter)), (0, 1));
    drop(limiter.hold("s", &held()).await.unwrap());
    assert_eq!((limiter.store().store.holds(), left(&limiter)), (0, 1));
}

#[test]
fn a_hold_of_the_fallback_is_renewed_and_settled_there() {
    let (limiter, broken, _) = limiter("");
    let of_store = ready(limiter.check("s", &held())).hold().unwrap();
    broken.store(true, Ordering::Relaxed);
    let decisions: Vec<_> = (0..3).map(|_| ready(limiter.check("s", &held()))).collect();
    let local: Vec<_> = decisions.iter().filter_map(|it| it.hold()).collect();
    assert_eq!(local.len(), 2);
    assert_eq!(ready(limiter.renew(local[0], MINUTE)), Ok(true));
    assert!(ready(limiter.renew(of_store, MINUTE)).is_err());
    assert!(ready(limiter.settle(of_store, Settlement::RELEASE)).is_err());
    broken.store(true, Ordering::Relaxed);
    let settle = |id| ready(limiter.settle(id, Settlement::RELEASE));
    assert!(settle(local[0]).unwrap().is_some());
    assert!(ready(limiter.check("s", &held())).allowed());
    broken.store(false, Ordering::Relaxed);
    // The store is back: both are found, each where it is, and charged once.
    assert_eq!(left(&limiter), 1);
    assert!(settle(local[1]).unwrap().is_some());
    assert_eq!(left(&limiter), 1);
    assert_eq!(ready(limiter.renew(of_store, MINUTE)), Ok(true));
    assert!(settle(of_store).unwrap().is_some());
    assert_eq!(left(&limiter), 2);
    assert_eq!(settle(of_store), Ok(None));
    assert_eq!(settle(local[0]), Ok(None));
}

/// A bucket of two an hour, whose numbers come with the call.
fn two_an_hour() -> Band {
    let hour = std::time::Duration::from_secs(3600);
    let limit = Limit::builder(Algorithm::TokenBucket, 2, hour).build();
    Band::new("", limit.unwrap())
}

#[test]
fn limits_that_come_with_the_call_obey_their_own_on_error() {
    let band = two_an_hour();
    let key = AdHocKey::key(b"k");
    for (on_error, outcome, allowed) in [
        (OnError::Local, "fallback", [true, true, false]),
        (OnError::Allow, "failed_open", [true; 3]),
        (OnError::Deny, "failed_closed", [false; 3]),
    ] {
        // The rule set's own `on_error` does not matter.
        let (builder, broken, notes) = builder("on_error: deny,");
        let limiter = builder.call_limits(on_error).build();
        assert_eq!(limiter.call_limits_on_error(), on_error);
        let take = || ready(limiter.take(&key, &band, 1));
        assert_eq!(take().outcome.name(), "allowed");
        broken.store(true, Ordering::Relaxed);
        let decisions = [take(), take(), take()];
        assert_eq!(decisions.map(|it| it.outcome.name()), [outcome; 3]);
        assert_eq!(decisions.map(|it| it.allowed), allowed);
        let is_known = on_error == OnError::Local;
        assert_eq!(decisions.map(|it| it.remaining.is_some()), [is_known; 3]);
        if on_error == OnError::Deny {
            let wait = decisions[0].retry_after.after();
            assert_eq!(wait.map(|wait| wait.get()), Some(SECOND));
        }
        if on_error == OnError::Allow {
            assert_eq!(decisions[0].retry_after, Retry::NOW);
        }
        let note = format!("timeout: no answer: {on_error:?}");
        assert_eq!(notes.take(), [note.clone(), note.clone(), note]);
        broken.store(false, Ordering::Relaxed);
        // Nothing was charged in between.
        assert_eq!(take().remaining, Some(0));
    }
}

#[test]
fn a_request_without_checks_is_decided_without_the_store() {
    let (limiter, broken, notes) = limiter("on_error: deny,");
    broken.store(true, Ordering::Relaxed);
    let free = RequestContext::builder().path("/free").build();
    let decision = ready(limiter.check("s", &free));
    assert_eq!(decision.outcome().name(), "no_rule");
    assert!(notes.take().is_empty());
}

#[test]
fn calls_about_a_rule_return_the_store_error() {
    let (limiter, broken, _) = limiter("");
    broken.store(true, Ordering::Relaxed);
    let is_timeout = |error: LimiterError| matches!(error, LimiterError::Store(error) if error.reason == Reason::TIMEOUT);
    assert!(is_timeout(
        ready(limiter.refund("s", "r", &[], 1)).unwrap_err()
    ));
    assert!(is_timeout(ready(limiter.reset("s", "r", &[])).unwrap_err()));
    assert!(is_timeout(ready(limiter.state("s", "r", &[])).unwrap_err()));
    let set = ready(limiter.reset_set("s")).unwrap_err();
    assert!(is_timeout(set));
    broken.store(true, Ordering::Relaxed);
    let (key, band) = (AdHocKey::key(b"k"), two_an_hour());
    let timeouts = [
        ready(limiter.ad_hoc_state(&key, &band)).map(drop),
        ready(limiter.refund_ad_hoc(&key, &band, 1)).map(drop),
        ready(limiter.reset_ad_hoc(&key, &band)).map(drop),
    ];
    for timeout in timeouts {
        assert_eq!(timeout.unwrap_err().reason, Reason::TIMEOUT);
    }
    assert!(is_timeout(ready(limiter.reset_rule("s", "r")).unwrap_err()));
}

#[test]
fn a_missing_rule_set_allows_by_default_and_is_reported_once() {
    let (limiter, _, notes) = limiter("");
    for _ in 0..3 {
        for name in ["t", "u"] {
            let decision = ready(limiter.check(name, &RequestContext::default()));
            assert!(decision.allowed());
            assert_eq!(decision.outcome().name(), "no_rule");
            let _ = ready(limiter.peek(name, &RequestContext::default()));
        }
    }
    assert_eq!(notes.take(), ["t", "u"]);
}

#[test]
fn a_missing_rule_set_whose_report_was_not_passed_on_is_reported_again() {
    let (limiter, _, notes) = limiter("");
    for _ in 0..2 {
        let _ = ready(limiter.check("not-passed-on", &RequestContext::default()));
    }
    assert_eq!(notes.take(), ["not-passed-on"; 2]);
}

#[test]
fn one_failed_reset_does_not_stop_the_others() {
    let rules = |capacity: u64| {
        let rule = |id: &str| {
            format!(
                "{{ id: {id}, scope: global, reset_on_change: true, bands: [{{ capacity: {capacity}, window: 1h }}] }}"
            )
        };
        parse(&set_of(&format!("{}, {}", rule("a"), rule("b"))))
    };
    let (limiter, broken, _) = limiter("");
    ready(limiter.replace_rules(rules(5))).unwrap();
    let _ = ready(limiter.check("s", &RequestContext::default()));
    assert_eq!(limiter.store().store.len(), 2);
    broken.store(true, Ordering::Relaxed);
    let error = ready(limiter.replace_rules(rules(6))).unwrap_err();
    assert_eq!(error.reason, Reason::TIMEOUT);
    assert_eq!(limiter.store().store.len(), 1);
}

#[test]
fn a_missing_rule_set_can_deny() {
    let rules = "{ on_missing_rule_set: deny, rule_sets: { s: { rules: [
        { id: r, scope: global, bands: [{ capacity: 2, window: 1h }] }] } } }";
    let gate = Gate::new(rules);
    let decision = ready(gate.limiter.check("t", &RequestContext::default()));
    let shown = fields(&decision);
    assert!(!shown.allowed);
    assert_eq!((shown.outcome, retry(&decision)), ("denied", None));
    assert_eq!(
        (shown.rule, shown.band, shown.limit, shown.remaining),
        (None, None, None, None)
    );
    assert_eq!((shown.reset, shown.delay), (0, 0));
    assert!(shown.violated.is_empty());
    assert!(gate.take(1).allowed());
    let at = gate
        .limiter
        .check_at("t", &RequestContext::default(), instant(START));
    assert_eq!(at.outcome().name(), "denied");
}
