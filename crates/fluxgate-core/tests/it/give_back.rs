//! What a request was charged, given back: as if it had never been.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::{
    Band, Checks, Decision, Limiter, Micros, Outcome, Reason, RequestContext, Store, StoreError,
    Subject, Verdicts, ready,
};
use fluxgate_core::{Charge, ManualClock, MemoryStore};

use crate::support::{Gate, SECOND, START, parse, seen, set_of, violated};

const WAITS: &str = "on_exceed: wait, max_wait: 5s";

fn give_back(gate: &Gate, context: &RequestContext<'_>, decision: &Decision) {
    give_back_after(gate, context, decision, 0);
}

fn give_back_after(gate: &Gate, context: &RequestContext<'_>, decision: &Decision, waited: u64) {
    let charge = decision.charge(context).unwrap();
    ready(gate.limiter.give_back(charge, Micros::new(waited))).unwrap();
}

#[test]
fn a_reservation_that_is_given_back_leaves_no_trace() {
    let rules = set_of(&format!(
        "{{ id: r, scope: per_user, {WAITS}, bands: [ {{ id: a, capacity: 3, window: 3s }}, {{ id: b, capacity: 100, window: 1h }} ] }}, \
         {{ id: others, scope: global, algorithm: sliding_log, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: window, scope: per_ip, algorithm: fixed_window, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: sliding, scope: global, algorithm: sliding_window, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: leaky, key: [\"header:x-a\", \"attr:b\"], algorithm: leaky_bucket, bands: [ {{ capacity: 50, window: 1m }} ] }}, \
         {{ id: dark, mode: shadow, scope: per_user, bands: [ {{ capacity: 50, window: 1h }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = |cost| {
        let context = RequestContext::builder().user("u").ip([10, 0, 0, 1]);
        let context = context.header("X-A", "1").attribute("b", "2").cost(cost);
        context.build()
    };
    for _ in 0..3 {
        assert!(gate.check(&context(1)).allowed());
    }
    let states = || {
        let of = |rule, identity: &[&str]| {
            let states = ready(gate.limiter.state("s", rule, identity)).unwrap();
            let states = states.iter();
            states
                .map(|state| (state.remaining, state.reset_after))
                .collect::<Vec<_>>()
        };
        [
            of("r", &["u"]),
            of("others", &[]),
            of("window", &["10.0.0.1"]),
            of("sliding", &[]),
            of("leaky", &["1", "2"]),
            of("dark", &["u"]),
        ]
    };
    let before = (seen(&gate.peek(&context(1))), states());
    let reserved = gate.check(&context(2));
    assert!(reserved.allowed());
    assert_eq!(reserved.delay(), Micros::new(2 * SECOND));
    assert_ne!((seen(&gate.peek(&context(1))), states()), before);
    give_back(&gate, &context(2), &reserved);
    assert_eq!((seen(&gate.peek(&context(1))), states()), before);
}

/// A companion that does not wait, charged with a request that then waits.
fn companion(algorithm: &str) -> (Gate, RequestContext<'static>, Decision) {
    let rules = set_of(&format!(
        "{{ id: r, scope: global, {WAITS}, bands: [ {{ capacity: 2, window: 4s }} ] }}, \
         {{ id: c, scope: global, algorithm: {algorithm}, bands: [ {{ capacity: 10, window: 10s }} ] }}"
    ));
    let gate = Gate::new(&rules);
    // A second before a window ends.
    gate.at(START + 9 * SECOND);
    let context = RequestContext::builder().cost(2).build();
    assert_eq!(gate.check(&context).delay(), Micros::ZERO);
    let reserved = gate.check(&context);
    assert_eq!(reserved.delay().get(), 4 * SECOND);
    (gate, context, reserved)
}

/// What a companion has left before and after a request that has waited so long
/// gives its two units back, others having come meanwhile.
fn companion_left(algorithm: &str, waited: u64) -> (u64, u64) {
    let (gate, context, reserved) = companion(algorithm);
    gate.at(START + 9 * SECOND + waited);
    let others = ready(gate.limiter.consume("s", "c", &[], Some(3))).unwrap();
    assert!(others.allowed());
    let left = || ready(gate.limiter.state("s", "c", &[])).unwrap()[0].remaining;
    let before = left();
    give_back_after(&gate, &context, &reserved, waited);
    // The bucket that it waited for owes nothing for it any more.
    let owed = ready(gate.limiter.state("s", "r", &[])).unwrap()[0].reset_after;
    assert_eq!(owed.get(), 4 * SECOND - waited, "{algorithm}");
    (before, left())
}

#[test]
fn what_has_left_a_band_by_itself_is_not_given_back() {
    for algorithm in ["fixed_window", "sliding_window"] {
        let (before, after) = companion_left(algorithm, SECOND / 2);
        assert_eq!(after, before + 2, "{algorithm}: the window still holds it");
        let (before, after) = companion_left(algorithm, SECOND + 1);
        assert_eq!(after, before, "{algorithm}: another window, others' units");
    }
    let (before, after) = companion_left("sliding_log", 3 * SECOND);
    assert_eq!(after, before + 2);
    // Four were owed, the request's from the third second on.
    for (waited, back) in [(SECOND, 2), (2 * SECOND + SECOND / 2, 1), (3 * SECOND, 0)] {
        let (before, after) = companion_left("token_bucket", waited);
        assert_eq!(after, before + back, "after {waited} µs");
    }
}

#[test]
fn a_log_that_is_shorter_than_the_wait_gets_nothing() {
    let rules = set_of(&format!(
        "{{ id: r, scope: global, {WAITS}, bands: [ {{ capacity: 1, window: 4s }} ] }}, \
         {{ id: c, scope: global, algorithm: sliding_log, bands: [ {{ capacity: 2, window: 1s }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = RequestContext::default();
    assert!(gate.check(&context).allowed());
    let reserved = gate.check(&context);
    gate.at(START + 2 * SECOND);
    assert!(
        ready(gate.limiter.consume("s", "c", &[], Some(2)))
            .unwrap()
            .allowed()
    );
    give_back_after(&gate, &context, &reserved, 2 * SECOND);
    assert!(
        !ready(gate.limiter.consume("s", "c", &[], None))
            .unwrap()
            .allowed()
    );
}

#[test]
fn where_the_time_is_not_known_only_who_can_owe_gets_units() {
    let (gate, context, _) = companion("fixed_window");
    let set = gate.limiter.rule_set("s").unwrap();
    let charge = Charge::of(&set, &context, Outcome::Allowed, |_| false).unwrap();
    assert_eq!(charge.rules(), 1);
    ready(gate.limiter.give_back(charge, Micros::ZERO)).unwrap();
    let left = |rule| ready(gate.limiter.state("s", rule, &[])).unwrap().remove(0);
    assert_eq!(left("r").reset_after.get(), 4 * SECOND);
    assert_eq!(left("c").remaining, 6);
}

#[test]
fn those_who_come_after_have_the_place_of_one_who_left() {
    let rules = set_of(&format!(
        "{{ id: r, scope: global, {WAITS}, bands: [ {{ capacity: 1, window: 1s }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = RequestContext::default();
    let delays: Vec<_> = (0..3).map(|_| gate.check(&context)).collect();
    let micros = |decision: &Decision| decision.delay().get();
    assert_eq!(
        delays.iter().map(micros).collect::<Vec<_>>(),
        [0, SECOND, 2 * SECOND]
    );
    give_back(&gate, &context, &delays[2]);
    assert_eq!(micros(&gate.check(&context)), 2 * SECOND);
}

#[test]
fn a_shadow_rule_that_would_have_refused_took_nothing_and_gets_nothing() {
    let rules = set_of(
        "{ id: r, scope: global, on_exceed: wait, bands: [ { capacity: 9, window: 1h } ] }, \
         { id: dark, mode: shadow, scope: global, on_exceed: wait, max_wait: 1ms, bands: [ { capacity: 4, window: 1h } ] }",
    );
    let gate = Gate::new(&rules);
    let dark = || ready(gate.limiter.state("s", "dark", &[])).unwrap()[0].remaining;
    assert!(gate.take(3).allowed());
    let context = RequestContext::builder().cost(2).build();
    let decision = gate.check(&context);
    assert_eq!(decision.outcome(), Outcome::ShadowDenied);
    assert_eq!(dark(), 1);
    give_back(&gate, &context, &decision);
    assert_eq!((dark(), gate.left(&[])), (1, vec![6]));
    // By name, as a service that was asked is told of it.
    let set = gate.limiter.rule_set("s").unwrap();
    let refused = |rule: &str| rule == "dark";
    let charge = Charge::of(&set, &context, Outcome::ShadowDenied, refused).unwrap();
    assert_eq!(charge.rules(), 1);
    ready(gate.limiter.give_back(charge, Micros::ZERO)).unwrap();
    assert_eq!((dark(), gate.left(&[])), (1, vec![8]));
}

#[test]
fn what_was_charged_nothing_has_nothing_to_give_back() {
    let rules = set_of("{ id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] }");
    let gate = Gate::new(&rules);
    let free = RequestContext::builder().cost(0).build();
    assert!(gate.check(&free).charge(&free).is_none());
    let context = RequestContext::default();
    assert!(gate.check(&context).charge(&context).is_some());
    let denied = gate.check(&context);
    assert!(!denied.allowed() && denied.charge(&context).is_none());
    for decision in [Decision::failed_open(), Decision::failed_closed()] {
        assert!(decision.charge(&context).is_none());
    }
    let set = gate.limiter.rule_set("s").unwrap();
    for outcome in [Outcome::FailedOpen, Outcome::NoRule, Outcome::Denied] {
        assert!(Charge::of(&set, &context, outcome, |_| false).is_none());
    }
}

/// A store that always fails to decide, and tells of refunds.
#[derive(Debug, Default)]
struct Broken {
    refunded: AtomicBool,
}

fn broken<T>() -> Result<T, StoreError> {
    Err(StoreError {
        reason: Reason::Timeout,
        message: "no answer".into(),
    })
}

impl Store for Broken {
    async fn decide(&self, _: &Checks<'_>) -> Result<Verdicts, StoreError> {
        broken()
    }

    async fn refund(&self, _: Subject<'_>, _: &[Band], _: u64) -> Result<Verdicts, StoreError> {
        self.refunded.store(true, Ordering::Relaxed);
        broken()
    }

    async fn reset(&self, _: Subject<'_>, _: &[Band]) -> Result<u64, StoreError> {
        broken()
    }

    async fn reset_rule(&self, _: Subject<'_>) -> Result<u64, StoreError> {
        broken()
    }
}

#[test]
fn what_the_fallback_took_goes_back_to_the_fallback() {
    let rules = set_of("{ id: r, scope: global, bands: [ { capacity: 2, window: 1h } ] }");
    let limiter = Limiter::new(parse(&rules), Broken::default());
    let context = RequestContext::default();
    let check = || ready(limiter.check("s", &context)).unwrap();
    let first = check();
    assert_eq!(
        (first.outcome(), first.remaining()),
        (Outcome::Fallback, Some(1))
    );
    let charge = first.charge(&context).unwrap();
    ready(limiter.give_back(charge, Micros::ZERO)).unwrap();
    assert_eq!(check().remaining(), Some(1));
    assert!(!limiter.store().refunded.load(Ordering::Relaxed));
}

#[test]
fn a_reservation_without_a_place_is_denied_by_the_bands_it_would_wait_for() {
    let rules = set_of(&format!(
        "{{ id: a, scope: global, {WAITS}, bands: [ {{ id: x, capacity: 1, window: 1s }}, {{ id: y, capacity: 1, window: 3s }} ] }}, \
         {{ id: tight, scope: global, bands: [ {{ capacity: 2, window: 1h }} ] }}, \
         {{ id: dark, mode: shadow, scope: global, bands: [ {{ capacity: 1, window: 1h }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = RequestContext::default();
    assert!(gate.check(&context).allowed());
    let reserved = gate.check(&context);
    assert_eq!(reserved.delay().get(), 3 * SECOND);
    assert_eq!(violated(&reserved), ["dark/b0"]);
    let denied = reserved.into_denied();
    let shown = seen(&denied);
    assert_eq!(
        (shown.allowed, shown.outcome, shown.retry, shown.delay),
        (false, "denied", Some(3 * SECOND), 0)
    );
    assert_eq!(
        (shown.rule.as_deref(), shown.band.as_deref()),
        (Some("a"), Some("y"))
    );
    assert_eq!(
        (shown.limit, shown.remaining, shown.reset),
        (Some(1), Some(0), 6 * SECOND)
    );
    assert_eq!(shown.violated, ["a/x", "a/y"], "all that it would wait for");
    let rules: Vec<_> = denied
        .rules()
        .map(|(rule, refused)| (rule.id(), refused))
        .collect();
    assert_eq!(rules, [("a", true), ("tight", false)]);
    assert!(denied.charge(&context).is_none());
}

#[test]
fn a_denial_is_worth_waiting_for_where_every_rule_that_refuses_waits_so_long() {
    let window = |id: &str, window: &str, rest: &str| {
        format!(
            "{{ id: {id}, scope: global, algorithm: fixed_window, {rest} bands: [ {{ capacity: 1, window: {window} }} ] }}"
        )
    };
    let worth = |rules: &[&str]| {
        let gate = Gate::new(&set_of(&rules.join(",")));
        assert!(gate.take(1).worth_waiting().is_none(), "it passed");
        gate.take(1).worth_waiting().map(Micros::get)
    };
    let waits = "on_exceed: wait, max_wait: 5s,";
    let (short, long) = (window("a", "4s", waits), window("b", "6s", waits));
    let plain = window("c", "1s", "");
    // The clock stands at the start of a window of each.
    assert_eq!(worth(&[&short]), Some(4 * SECOND));
    assert_eq!(worth(&[&long]), None);
    assert_eq!(worth(&[&short, &long]), None);
    assert_eq!(worth(&[&short, &plain]), None);
    // Never is longer than any wait.
    let gate = Gate::new(&set_of(&window("a", "4s", waits)));
    assert!(gate.take(2).worth_waiting().is_none());
    assert!(Decision::failed_closed().worth_waiting().is_none());
}

#[test]
fn a_rule_set_knows_which_headers_it_asks_about() {
    let rules = set_of(
        "{ id: a, match: { headers: { X-Plan: free } }, key: [\"header:X-Tenant\"], cost: \"header:X-Cost\", bands: [ { capacity: 1, window: 1s } ] }, \
         { id: b, match: { headers: { x-plan: paid } }, scope: global, bands: [ { capacity: 1, window: 1s } ] }, \
         { id: off, enabled: false, key: [\"header:X-Off\"], bands: [ { capacity: 1, window: 1s } ] }",
    );
    let sets = parse(&rules);
    let names: Vec<&str> = { sets.get("s").unwrap().header_names().iter() }
        .map(|name| &**name)
        .collect();
    assert_eq!(names, ["x-cost", "x-plan", "x-tenant"]);
}

#[test]
fn a_store_without_a_bound_has_a_place_for_everybody() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: global, bands: [ { capacity: 1, window: 1s } ] }",
    ));
    let place = ready(gate.limiter.begin_wait(Duration::from_secs(1)));
    assert!(place.unwrap().is_some());
}

#[test]
fn an_owned_context_says_the_same() {
    let context = RequestContext::builder()
        .ip([1, 2, 3, 4])
        .user("u")
        .api_key("k")
        .method("GET")
        .path("/x")
        .header("a", "b")
        .attribute("c", "d")
        .cost(3)
        .whole_keys_only()
        .build();
    assert_eq!(context.clone().into_owned(), context);
    assert_eq!(context.headers().collect::<Vec<_>>(), [("a", "b")]);
    assert_eq!(context.attributes().collect::<Vec<_>>(), [("c", "d")]);
}

#[test]
fn a_check_at_once_is_a_check() {
    let rules = set_of("{ id: r, scope: per_user, bands: [ { capacity: 2, window: 1h } ] }");
    let gate = Gate::new(&rules);
    let set = gate.limiter.rule_set("s").unwrap();
    let context = RequestContext::builder().user("u").build();
    let limiter: &Limiter<MemoryStore<ManualClock>> = &gate.limiter;
    let first = limiter.check_at_once(&set, &context).unwrap();
    assert_eq!(
        (first.remaining(), first.rule_set().unwrap().name()),
        (Some(1), "s")
    );
    assert_eq!(ready(limiter.check_by(&set, &context)).remaining(), Some(0));
    assert!(!limiter.check_at_once(&set, &context).unwrap().allowed());
    // A store that must be waited for is not asked.
    let slow = Limiter::new(parse(&rules), Broken::default());
    assert!(
        slow.check_at_once(&slow.rule_set("s").unwrap(), &context)
            .is_none()
    );
    assert_eq!(limiter.missing_rule_set("none").outcome(), Outcome::NoRule);
}
