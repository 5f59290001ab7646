//! The other calls: several requests together, one rule by name, and limits that come
//! with the call.

use std::time::Duration;

use fluxgate_core::task::ready;
use fluxgate_core::{
    AdHocKey, Algorithm, Band, Decision, Limit, LimiterError, Outcome, RequestContext,
};

use crate::support::{Gate, SECOND, START, micros, per_user, set_of};

fn attribute<'a>(name: &'a str, value: &'a str) -> RequestContext<'a> {
    let context = RequestContext::builder().attribute(name, value);
    context.whole_keys_only().build()
}

fn outcomes(decisions: &[Decision]) -> Vec<(bool, Outcome, Option<u64>)> {
    let summary =
        |decision: &Decision| (decision.allowed(), decision.outcome(), decision.remaining());
    decisions.iter().map(summary).collect()
}

const TWO: &str = "
  { id: a, key: ['attr:a'], bands: [ { capacity: 5, window: 1m } ] },
  { id: b, key: ['attr:b'], bands: [ { capacity: 2, window: 1m } ] },
  { id: dark, mode: shadow, key: ['attr:b'], bands: [ { capacity: 1, window: 1m } ] }";

#[test]
fn several_requests_are_charged_together_or_not_at_all() {
    let gate = Gate::new(&set_of(TWO));
    let both = [
        attribute("a", "1"),
        attribute("b", "1"),
        attribute("c", "1"),
    ];
    let check = || outcomes(&ready(gate.limiter.check_all("s", &both)));
    use Outcome::{Allowed, Denied, NoRule, ShadowDenied};
    let none = (true, NoRule, None);
    assert_eq!(
        check(),
        [(true, Allowed, Some(4)), (true, Allowed, Some(1)), none]
    );
    let second = [
        (true, Allowed, Some(3)),
        (true, ShadowDenied, Some(0)),
        none,
    ];
    assert_eq!(check(), second);
    // The second is denied, so the first is not charged.
    for _ in 0..2 {
        let third = [(true, Allowed, Some(3)), (false, Denied, Some(0)), none];
        assert_eq!(check(), third);
    }
}

#[test]
fn requests_of_one_counter_add_up() {
    let gate = Gate::new(&set_of(TWO));
    let thrice = [
        attribute("b", "1"),
        attribute("b", "1"),
        attribute("b", "1"),
    ];
    let decisions = ready(gate.limiter.check_all("s", &thrice));
    assert!(!decisions[2].allowed());
    let decisions = ready(gate.limiter.check_all("s", &thrice[..2]));
    assert!(decisions.iter().all(Decision::allowed));
    assert_eq!(decisions[1].remaining(), Some(0));
}

#[test]
fn with_whole_keys_only_a_rule_without_its_parts_does_not_match() {
    for on_missing in ["ip", "anonymous", "deny"] {
        let rule =
            format!("on_missing_key: {on_missing}, bands: [ {{ capacity: 1, window: 1m }} ]");
        let gate = Gate::new(&per_user(&rule));
        for _ in 0..3 {
            let decision = gate.check(&attribute("plan", "free"));
            assert_eq!(decision.outcome(), Outcome::NoRule);
        }
    }
}

#[test]
fn an_unknown_rule_set_gives_all_requests_the_same_decision() {
    let gate = Gate::new(&set_of(TWO));
    let decisions = ready(gate.limiter.check_all("x", &[attribute("a", "1")]));
    assert_eq!(outcomes(&decisions), [(true, Outcome::NoRule, None)]);
}

#[test]
fn a_rule_is_charged_by_name() {
    let rule = "match: { path: ['/x'] }, cost: 2, bands: [ { capacity: 5, window: 1m } ],
        overrides: [ { identity: vip, bands: [ { capacity: 50, window: 1m } ] } ]";
    let gate = Gate::new(&per_user(rule));
    let consume = |user, cost| ready(gate.limiter.consume("s", "r", &[user], cost));
    assert_eq!(consume("u", None).unwrap().remaining(), Some(3));
    assert_eq!(consume("u", Some(3)).unwrap().remaining(), Some(0));
    assert_eq!(consume("u", Some(1)).unwrap().outcome(), Outcome::Denied);
    assert_eq!(consume("vip", Some(9)).unwrap().remaining(), Some(41));
    // Requests use the same counter.
    let context = RequestContext::builder().user("u").path("/x").build();
    assert!(!gate.check(&context).allowed());
    let unknown = ready(gate.limiter.consume("s", "q", &["u"], None));
    assert!(matches!(unknown, Err(LimiterError::UnknownRule { .. })));
    let identity = ready(gate.limiter.consume("s", "r", &[], None));
    assert!(matches!(identity, Err(LimiterError::Identity(_))));
}

#[test]
fn a_shadow_rule_charged_by_name_never_denies() {
    let gate = Gate::new(&per_user(
        "mode: shadow, bands: [ { capacity: 1, window: 1m } ]",
    ));
    let consume = || ready(gate.limiter.consume("s", "r", &["u"], None)).unwrap();
    assert_eq!(consume().outcome(), Outcome::Allowed);
    let second = consume();
    assert_eq!(
        (second.allowed(), second.outcome()),
        (true, Outcome::ShadowDenied)
    );
}

#[test]
fn a_limit_may_come_with_the_call() {
    let gate = Gate::new(&per_user("bands: [ { capacity: 1, window: 1m } ]"));
    let limit = Limit::builder(Algorithm::TokenBucket, 3, Duration::from_secs(3)).build();
    let band = Band::new("b0", limit.unwrap());
    let take = |subject: &AdHocKey, cost| ready(gate.limiter.take(subject, &band, cost));
    let key = AdHocKey::key(b"user-\xff");
    let first = take(&key, 2);
    assert_eq!((first.allowed, first.remaining), (true, Some(1)));
    assert_eq!(first.reset_after.get(), 2 * SECOND);
    let refused = take(&key, 2);
    assert_eq!(
        (refused.outcome, refused.remaining),
        (Outcome::Denied, Some(1))
    );
    assert_eq!(
        refused.retry_after.after().map(|wait| wait.get()),
        Some(SECOND)
    );
    assert_eq!(take(&key, 4).outcome, Outcome::Never);
    gate.at(START + SECOND);
    assert!(take(&key, 2).allowed);
    // Names and values do not collide.
    let ab = AdHocKey::named("n", &["a", "b"]);
    for other in [
        AdHocKey::named("n", &["ab"]),
        AdHocKey::named("na", &["b"]),
        AdHocKey::key(b"a"),
    ] {
        assert_eq!(take(&other, 3).remaining, Some(0));
    }
    assert!(take(&ab, 3).allowed);
}

#[test]
fn a_limit_that_comes_with_the_call_can_be_read_refunded_and_reset() {
    let gate = Gate::new(&per_user("bands: [ { capacity: 1, window: 1m } ]"));
    let limit = Limit::builder(Algorithm::TokenBucket, 5, Duration::from_secs(5)).build();
    let band = Band::new("b0", limit.unwrap());
    let (ann, bob) = (
        AdHocKey::named("n", &["ann"]),
        AdHocKey::named("n", &["bob"]),
    );
    assert_eq!(
        (&*ann.describe(), &*AdHocKey::key(b"k").describe()),
        ("key=ann", "key=k")
    );
    let limiter = &gate.limiter;
    for subject in [&ann, &bob] {
        assert_eq!(ready(limiter.take(subject, &band, 4)).remaining, Some(1));
    }
    let state = |subject| {
        let state = ready(limiter.ad_hoc_state(subject, &band)).unwrap();
        (state.remaining, micros(state.reset_after))
    };
    assert_eq!(state(&ann), (1, 4 * SECOND));
    assert_eq!(ready(limiter.refund_ad_hoc(&ann, &band, 3)), Ok(4));
    assert_eq!((state(&ann), state(&bob)), ((4, SECOND), (1, 4 * SECOND)));
    assert_eq!(ready(limiter.reset_ad_hoc(&bob, &band)), Ok(1));
    assert_eq!(ready(limiter.reset_ad_hoc(&bob, &band)), Ok(0));
    assert_eq!((state(&ann), state(&bob)), ((4, SECOND), (5, 0)));
}

#[test]
fn a_whole_set_is_reset() {
    let gate = Gate::new(&set_of(TWO));
    let all = [
        attribute("a", "1"),
        attribute("b", "1"),
        attribute("b", "2"),
    ];
    ready(gate.limiter.check_all("s", &all));
    // One of `a`, and two each of `b` and the shadow rule.
    assert_eq!(ready(gate.limiter.reset_set("s")), Ok(5));
    assert_eq!(ready(gate.limiter.reset_set("s")), Ok(0));
    let unknown = ready(gate.limiter.reset_set("x"));
    assert!(matches!(unknown, Err(LimiterError::UnknownRuleSet(_))));
}

/// Descriptors of Envoy need not be text.
#[test]
fn attributes_that_are_not_text_are_compared_by_their_bytes() {
    let gate = Gate::new(&set_of(
        "{ id: a, key: ['attr:a'], on_missing_key: skip, bands: [ { capacity: 1, window: 1m } ] },
         { id: m, match: { attributes: { plan: free } }, scope: global, bands: [ { capacity: 1, window: 1m } ] }",
    ));
    let check = |pairs: &[(&'static [u8], &'static [u8])]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let context = RequestContext::builder().attributes_bytes(pairs.collect());
        gate.check(&context.build()).outcome()
    };
    use Outcome::{Allowed, Denied, NoRule};
    let values = [
        &b"\xff"[..],
        b"\xfe",
        b"\xff\xff",
        "\u{fffd}".as_bytes(),
        b"x",
    ];
    for value in values {
        assert_eq!(check(&[(b"a", value)]), Allowed, "{}", value.escape_ascii());
    }
    for value in values {
        assert_eq!(check(&[(b"a", value)]), Denied, "{}", value.escape_ascii());
    }
    assert_eq!(
        check(&[(b"a", b"y"), (b"a", b"\xff")]),
        Denied,
        "the last counts"
    );
    assert_eq!(check(&[(b"plan", b"free\xff")]), NoRule);
    assert_eq!(check(&[(b"plan\xff", b"free")]), NoRule);
    assert_eq!(check(&[(b"plan", b"free")]), Allowed);
}
