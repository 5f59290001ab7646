//! Overrides that end.

use fluxgate_core::task::ready;
use fluxgate_core::{Quota, RequestContext, Rule, RuleSet, RuleSets, Timestamp};

use crate::rules::rule_refused;
use crate::support::{Gate, START, instant, parse, per_user};

/// 2023-11-14T22:13:20Z, and the same with another offset.
const UNTIL: u64 = 1_700_000_000_000_000;

/// Bob's override does not end.
fn rules(until: &str) -> String {
    per_user(&format!(
        "algorithm: fixed_window, bands: [ 5/d ], overrides: [ \
         {{ identity: ann, bands: [ 50/d ]{until} }}, {{ identity: bob, bands: [ 50/d ] }} ]"
    ))
}

fn ending() -> Gate {
    Gate::new(&rules(", until: \"2023-11-14T22:13:20Z\""))
}

fn limits(gate: &Gate) -> [Option<u64>; 3] {
    ["ann", "bob", "eve"].map(|user| gate.user(user).limit())
}

#[test]
fn an_override_applies_before_its_end_and_not_from_then_on() {
    let gate = ending();
    assert_eq!(limits(gate.at(UNTIL - 1)), [Some(50), Some(50), Some(5)]);
    assert_eq!(limits(gate.at(UNTIL)), [Some(5), Some(50), Some(5)]);
    // What was used before counts.
    assert_eq!(gate.left(&["ann"]), [3]);
}

#[test]
fn an_override_applies_again_if_the_clock_goes_back_before_its_end() {
    let gate = ending();
    assert_eq!(gate.at(UNTIL + 1).user("ann").limit(), Some(5));
    assert_eq!(gate.at(UNTIL - 1).user("ann").limit(), Some(50));
}

#[test]
fn all_calls_agree_on_the_end() {
    let gate = ending();
    let ann = RequestContext::builder().user("ann").build();
    for (now, limit) in [(UNTIL - 1, 50), (UNTIL, 5)] {
        gate.at(now);
        let limiter = &gate.limiter;
        let limit = Some(limit);
        assert_eq!(limiter.check_sync("s", &ann).limit(), limit);
        assert_eq!(gate.peek(&ann).limit(), limit);
        let all = ready(limiter.check_all("s", std::slice::from_ref(&ann)));
        assert_eq!(all[0].limit(), limit);
        let consumed = ready(limiter.consume("s", "r", &["ann"], None)).unwrap();
        assert_eq!(consumed.limit(), limit);
        let explained = ready(limiter.explain("s", &ann)).unwrap();
        assert_eq!(explained.decision.limit(), limit);
        let state = &gate.state(&["ann"])[0];
        assert_eq!(Some(state.band.capacity()), limit);
        ready(limiter.reset("s", "r", &["ann"])).unwrap();
    }
}

#[test]
fn a_simulation_takes_the_time_of_each_line() {
    let gate = ending();
    gate.at(START);
    let ann = RequestContext::builder().user("ann").build();
    for (now, limit) in [(UNTIL - 1, 50), (UNTIL, 5), (UNTIL - 1, 50)] {
        let decision = gate.limiter.check_at("s", &ann, instant(now));
        assert_eq!(decision.limit(), Some(limit));
    }
}

#[test]
fn an_end_has_any_offset_and_is_written_in_utc() {
    let read = |until: &str| parse(&rules(&format!(", until: {until}")));
    let utc = read("2023-11-14T22:13:20Z");
    assert_eq!(utc, read("\"2023-11-15T07:13:20+09:00\""));
    assert_ne!(utc, read("2023-11-14T22:13:20.000001Z"));
    assert_ne!(utc, parse(&rules("")));
    let written = utc.to_yaml();
    assert!(
        written.contains("until: \"2023-11-14T22:13:20Z\""),
        "{written}"
    );
    assert_eq!(RuleSets::from_yaml(&written).unwrap(), utc);
    let changes = utc.changes_since(&parse(&rules("")));
    assert_eq!(changes.len(), 1);
    let change = changes[0].to_string();
    assert!(change.contains("overrides changed from"), "{change}");
}

#[test]
fn a_program_writes_the_same() {
    let day = Quota::per_day(5).algorithm(fluxgate_core::Algorithm::FixedWindow);
    let more = Quota::per_day(50).algorithm(fluxgate_core::Algorithm::FixedWindow);
    let until = Timestamp::from_micros(UNTIL).unwrap();
    let rule = Rule::new("r").per_user().band(day);
    let rule = rule.override_until(["ann"], [more], until);
    let rule = rule.override_for(["bob"], [more]);
    let set = RuleSet::builder("s").rule(rule).build().unwrap();
    assert_eq!(
        RuleSets::from(set),
        parse(&rules(", until: 2023-11-14T22:13:20Z"))
    );
}

#[test]
fn other_ends_are_refused() {
    for until in [
        "§tomorrow",
        "§2027-01-01",
        "§2027-01-01T00:00:00",
        "§1969-12-31T23:59:59Z",
        "§1798761600",
    ] {
        let rule = format!(
            "{{ id: r, scope: per_user, BANDS, \
             overrides: [ {{ identity: a, bands: [ 1/s ], until: {until} }} ] }}"
        );
        rule_refused(
            &rule,
            "`until` must be a time from 1970 on as RFC 3339 writes it, such as",
        );
    }
    rule_refused(
        "{ id: r, scope: per_user, BANDS, \
         overrides: [ { identity: a, bands: [ 1/s ], until: §[] } ] }",
        "`until` must be a text",
    );
}
