//! What a caller needs to wait: permits, delays and an owned context.

use std::time::Duration;

use fluxgate_core::store::{Micros, Mode};
use fluxgate_core::task::ready;
use fluxgate_core::{Decision, RequestContext, WaitRefusal};

use crate::support::{Gate, SECOND, fields, parse, set_of, violated};

const WAITS: &str = "on_exceed: wait, max_wait: 5s";

#[test]
fn a_reservation_without_a_permit_is_denied_by_the_bands_it_would_wait_for() {
    let rules = set_of(&format!(
        "{{ id: a, scope: global, {WAITS}, bands: [ {{ id: x, capacity: 1, window: 1s }}, {{ id: y, capacity: 1, window: 3s }} ] }}, \
         {{ id: tight, scope: global, bands: [ {{ capacity: 2, window: 1h }} ] }}, \
         {{ id: dark, mode: shadow, scope: global, bands: [ {{ capacity: 1, window: 1h }} ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = RequestContext::default();
    assert!(gate.check(&context).allowed());
    let reserved = gate.check(&context);
    assert_eq!(reserved.delay_micros().get(), 3 * SECOND);
    assert_eq!(violated(&reserved), ["dark/b0"]);
    let denied = reserved.into_denied();
    let shown = fields(&denied);
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
fn a_rule_outside_its_rollout_makes_nobody_wait() {
    let rules = set_of(&format!(
        "{{ id: new, rollout: 0%, scope: per_user, {WAITS}, bands: [ 1/3s ] }}, \
         {{ id: old, scope: per_user, {WAITS}, bands: [ 1/s ] }}"
    ));
    let gate = Gate::new(&rules);
    let context = RequestContext::builder().user("ann").build();
    assert!(gate.check(&context).allowed());
    let reserved = gate.check(&context);
    assert_eq!(reserved.delay_micros().get(), SECOND);
    let enforced = reserved.enforced_bands().map(|(rule, _)| rule.id());
    assert_eq!(enforced.collect::<Vec<_>>(), ["old"]);
    let denied = reserved.into_denied();
    assert_eq!(denied.rule().map(|rule| rule.id()), Some("old"));
    assert_eq!(violated(&denied), ["old/b0"]);
    assert_eq!(denied.rules().count(), 1, "shadow rules are not decided");
}

#[test]
fn a_denial_says_why_the_request_may_not_wait() {
    let rule = |id: &str, rest: &str, band: &str| {
        format!("{{ id: {id}, scope: global, {rest}, bands: [ {band} ] }}")
    };
    let waits = |most: u32| format!("on_exceed: wait, max_wait: {most}s");
    // Each takes its units until it denies.
    let refusal = |rules: &[String]| {
        let gate = Gate::new(&set_of(&rules.join(",")));
        let mut decision = gate.take(1);
        while decision.allowed() {
            decision = gate.take(1);
        }
        decision.wait_refusal()
    };
    let (long, many) = (Some(WaitRefusal::TooLong), Some(WaitRefusal::TooMany));
    assert_eq!(refusal(&[rule("a", &waits(5), "1/s")]), long);
    assert_eq!(
        refusal(&[rule("a", "mode: enforce", "1/s")]),
        None,
        "no rule waits"
    );
    let hard = rule("b", "mode: enforce", "1/h");
    assert_eq!(
        refusal(&[rule("a", &waits(5), "1/s"), hard]),
        None,
        "another rule denies"
    );
    let window = |most| {
        rule(
            "w",
            &format!("algorithm: fixed_window, {}", waits(most)),
            "1/m",
        )
    };
    assert_eq!(refusal(&[window(1)]), long);
    assert_eq!(
        refusal(&[window(60)]),
        None,
        "the caller may wait and ask again"
    );

    // Without a permit to wait, a bucket denies what it would have reserved.
    let gate = Gate::new(&set_of(&rule("a", &waits(5), "1/s")));
    let context = RequestContext::default();
    assert!(gate.take(1).allowed());
    let set = gate.limiter.active_rule_set("s").unwrap();
    let now = gate
        .limiter
        .try_check(&set, &context, Mode::TakeNow)
        .unwrap();
    assert_eq!((now.allowed(), now.wait_refusal()), (false, many));
    // A caller that does not want to wait is refused nothing.
    let now = ready(gate.limiter.check_in_mode("s", &context, Mode::TakeNow));
    assert_eq!((now.allowed(), now.wait_refusal()), (false, None));
    let never = gate.take(2);
    assert_eq!(
        (never.outcome().name(), never.wait_refusal()),
        ("never", None)
    );
}

#[test]
fn a_denial_is_worth_waiting_for_if_every_denying_rule_allows_that_wait() {
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
    // The clock is at the start of a window of each.
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
fn a_rule_set_knows_the_headers_it_uses() {
    let rules = set_of(
        "{ id: a, match: { headers: { X-Plan: free } }, key: [\"header:X-Tenant\"], cost: \"header:X-Cost\", bands: [ { capacity: 1, window: 1s } ] }, \
         { id: b, match: { headers: { x-plan: paid } }, scope: global, bands: [ { capacity: 1, window: 1s } ] }, \
         { id: c, match: { headers: { X-Debug: { present: true } } }, scope: global, bands: [ { capacity: 1, window: 1s } ] }, \
         { id: off, enabled: false, key: [\"header:X-Off\"], bands: [ { capacity: 1, window: 1s } ] }",
    );
    let sets = parse(&rules);
    let set = sets.get("s").unwrap();
    let texts = |names: &[Box<str>]| names.join(" ");
    assert_eq!(texts(set.header_names()), "x-cost x-debug x-plan x-tenant");
    // The value of a header that must only be present does not count.
    assert_eq!(texts(set.checked_header_names()), "x-cost x-plan x-tenant");
}

#[test]
fn a_store_without_a_bound_always_gives_a_permit() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: global, bands: [ { capacity: 1, window: 1s } ] }",
    ));
    let place = ready(gate.limiter.begin_wait(Duration::from_secs(1)));
    assert!(place.unwrap().is_some());
}

#[test]
fn an_owned_context_is_equal() {
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
