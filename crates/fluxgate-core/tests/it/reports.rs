//! Costs that are reported after the fact, and charged in any case.

use fluxgate_core::task::ready;
use fluxgate_core::{Decision, Outcome, RequestContext};

use crate::support::{Gate, NAMES, SECOND, retry, set_of};

/// Reports one cost.
fn report(gate: &Gate, units: u64) -> Decision {
    let context = RequestContext::builder().user("ann").cost(units).build();
    let mut decisions = ready(gate.limiter.report_all("s", &[context]));
    decisions.pop().unwrap()
}

fn left(gate: &Gate, rule: &str) -> u64 {
    ready(gate.limiter.state("s", rule, &["ann"])).unwrap()[0].remaining
}

#[test]
fn a_report_is_charged_whether_or_not_it_fits() {
    for name in NAMES {
        let rule = format!("{{ id: r, scope: per_user, algorithm: {name}, bands: [ 10/10s ] }}");
        let gate = Gate::new(&set_of(&rule));
        assert!(report(&gate, 6).allowed(), "{name}");
        assert_eq!(left(&gate, "r"), 4, "{name}");
        assert!(!report(&gate, 6).allowed(), "{name}");
        assert_eq!(left(&gate, "r"), 0, "{name}");
        let ann = RequestContext::builder().user("ann").cost(0).build();
        let owes = ready(gate.limiter.check("s", &ann));
        assert!(!owes.allowed(), "{name}: it owes 2");
        // Never more than another quota.
        let _ = report(&gate, 1_000);
        let state = &ready(gate.limiter.state("s", "r", &["ann"])).unwrap()[0];
        assert!(state.reset_after.as_secs() <= 20, "{name}: {state:?}");
        let before = state.reset_after;
        let _ = report(&gate, 0);
        let state = &ready(gate.limiter.state("s", "r", &["ann"])).unwrap()[0];
        assert_eq!(state.reset_after, before, "{name}: nothing was charged");
    }
}

#[test]
fn each_rule_is_charged_although_another_is_over() {
    let gate = Gate::new(&set_of(
        "{ id: small, scope: per_user, algorithm: fixed_window, bands: [ 2/1h ] }, \
         { id: large, scope: per_user, algorithm: fixed_window, bands: [ 100/1h ] }, \
         { id: watched, mode: shadow, scope: per_user, algorithm: fixed_window, bands: [ 100/1h ] }",
    ));
    assert!(report(&gate, 2).allowed());
    assert!(!report(&gate, 2).allowed());
    assert_eq!((left(&gate, "small"), left(&gate, "large")), (0, 96));
    // Where an enforced rule denies, no shadow rule is decided.
    assert_eq!(left(&gate, "watched"), 98);
}

#[test]
fn a_report_neither_waits_nor_takes_slots() {
    let gate = Gate::new(&set_of(
        "{ id: slots, group: g, scope: per_user, algorithm: concurrency, bands: [ { capacity: 1 } ] }, \
         { id: other, group: g, scope: per_user, bands: [ 5/1h ] }, \
         { id: paced, scope: per_user, on_exceed: wait, max_wait: 1h, bands: [ 1/10s ] }, \
         { id: shaped, scope: per_user, algorithm: leaky_bucket, shape: true, bands: [ 5/10s ] }",
    ));
    for _ in 0..2 {
        let reported = report(&gate, 1);
        assert!(
            reported.delay().is_zero() && reported.hold().is_none(),
            "{reported:?}"
        );
    }
    assert_eq!(left(&gate, "slots"), 1);
    // The rule with slots is still the one of its group that applies.
    assert_eq!(left(&gate, "other"), 5);
    let state = &ready(gate.limiter.state("s", "paced", &["ann"])).unwrap()[0];
    assert_eq!(state.reset_after.as_secs(), 20);
    // Requests wait as before.
    let ann = RequestContext::builder().user("ann").build();
    let waits = ready(gate.limiter.check("s", &ann));
    assert_eq!(waits.delay().as_secs(), 20, "{waits:?}");
}

#[test]
fn where_an_action_decides_nothing_is_charged() {
    let gate = Gate::new(&set_of(
        "{ id: free, action: allow, match: { user: free } }, \
         { id: blocked, action: deny, match: { user: blocked } }, \
         { id: all, scope: global, algorithm: fixed_window, bands: [ 5/1h ] }",
    ));
    for (user, outcome) in [("free", Outcome::Exempt), ("blocked", Outcome::Forbidden)] {
        let context = RequestContext::builder().user(user).build();
        let decisions = ready(gate.limiter.report_all("s", &[context]));
        assert_eq!(decisions[0].outcome(), outcome);
    }
    let all = ready(gate.limiter.state("s", "all", &[])).unwrap();
    assert_eq!(all[0].remaining, 5);
}

#[test]
fn a_report_follows_the_rules_as_they_change() {
    let gate = Gate::new(&set_of("{ id: r, scope: per_user, bands: [ 10/10s ] }"));
    let _ = report(&gate, 5);
    let rules = set_of("{ id: r, scope: per_user, bands: [ 20/10s ] }");
    let rules = fluxgate_core::RuleSets::from_yaml(&rules).unwrap();
    ready(gate.limiter.replace_rules(rules)).unwrap();
    let denied = report(&gate, 15);
    assert_eq!(retry(&denied), Some(10 * SECOND));
}
