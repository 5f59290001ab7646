//! Rules that notify: the use of bands that decisions report for them.

use std::time::Duration;

use fluxgate_core::store::Timestamp;
use fluxgate_core::task::ready;
use fluxgate_core::{Decision, Limiter, OnError, Percent, Quota, RequestContext, Rule, RuleSet};

use crate::store_failures::Fragile;
use crate::support::{
    ALGORITHMS, DAY, Gate, HOUR, MINUTE, START, name_of, parse, per_user, set_of,
};

/// Returns the band, the units in use and those before, of each band.
fn uses(decision: &Decision) -> Vec<(String, u64, Option<u64>)> {
    let uses = decision.uses();
    uses.map(|it| (it.band.id().to_owned(), it.used, it.used_before))
        .collect()
}

fn use_of(decision: &Decision) -> (u64, Option<u64>) {
    let mut uses = decision.uses();
    let only = uses.next().expect("the rule notifies");
    assert!(uses.next().is_none());
    (only.used, only.used_before)
}

fn costing(cost: u64) -> RequestContext<'static> {
    RequestContext::builder().user("ann").cost(cost).build()
}

#[test]
fn exactly_one_decision_reaches_a_share_with_every_algorithm() {
    for algorithm in ALGORITHMS {
        let name = name_of(algorithm);
        let gate = Gate::new(&per_user(&format!(
            "algorithm: {name}, bands: [ 10/h ], notify: [ 80%, 100% ]"
        )));
        let mut reached = Vec::new();
        for cost in [3, 4, 0, 2, 2, 1, 1, 1] {
            let decision = gate.check(&costing(cost));
            let (used, before) = use_of(&decision);
            let before = before.unwrap();
            assert_eq!(
                used - before,
                if decision.allowed() { cost } else { 0 },
                "{name}"
            );
            for share in [8, 10] {
                if before < share && used >= share {
                    reached.push((share, used));
                }
            }
        }
        assert_eq!(reached, [(8, 9), (10, 10)], "{name}");
    }
}

#[test]
fn a_request_that_reaches_two_shares_reports_both() {
    let gate = Gate::new(&per_user("bands: [ 10/h ], notify: [ 80%, 100% ]"));
    assert_eq!(use_of(&gate.check(&costing(10))), (10, Some(0)));
    assert_eq!(
        gate.limiter.rules().get("s").unwrap().rules()[0].notify(),
        [80, 100].map(Percent::new)
    );
}

#[test]
fn the_use_falls_by_refill_window_refund_and_reset() {
    for (algorithm, later) in [("token_bucket", 6 * MINUTE), ("fixed_window", HOUR)] {
        let gate = Gate::new(&per_user(&format!(
            "algorithm: {algorithm}, bands: [ 10/h ], notify: [ 80% ]"
        )));
        assert_eq!(use_of(&gate.check(&costing(8))), (8, Some(0)));
        gate.refund(&["ann"], 3);
        assert_eq!(use_of(&gate.check(&costing(3))), (8, Some(5)));
        ready(gate.limiter.reset("s", "r", &["ann"])).unwrap();
        assert_eq!(use_of(&gate.check(&costing(8))), (8, Some(0)));
        gate.at(START + later);
        let (used, before) = use_of(&gate.check(&costing(1)));
        assert_eq!(before, Some(used - 1));
        assert!(before < Some(8), "{algorithm}");
    }
}

#[test]
fn only_bands_of_a_minute_or_more_are_reported() {
    let gate = Gate::new(&per_user(
        "bands: [ { id: second, capacity: 50, window: 1s }, \
         { id: refills, capacity: 60, window: 1h, refill: 2, period: 1s }, \
         { id: minute, capacity: 60, window: 1m }, { id: slow, rate: 1/2s, burst: 30 }, 1000/d ], \
         notify: [ 50% ]",
    ));
    let uses = uses(&gate.user("ann"));
    let bands: Vec<_> = uses.iter().map(|(band, ..)| &**band).collect();
    assert_eq!(bands, ["minute", "slow", "b4"]);
    let gate = Gate::new(&per_user(
        "algorithm: fixed_window, notify: [ 50% ], \
         bands: [ 5/59s, { capacity: 5, calendar: hour }, { capacity: 9, calendar: year } ]",
    ));
    assert_eq!(gate.user("ann").uses().count(), 2);
}

#[test]
fn shadow_rules_and_identities_outside_the_rollout_report_nothing() {
    let notify = "scope: per_user, bands: [ 10/h ], notify: [ 10% ]";
    let shadow = Gate::new(&set_of(&format!("{{ id: r, mode: shadow, {notify} }}")));
    assert_eq!(shadow.user("ann").uses().count(), 0);
    let half = Gate::new(&set_of(&format!("{{ id: r, rollout: 50%, {notify} }}")));
    let reported = (0..100).filter(|user| half.user(&format!("u{user}")).uses().count() > 0);
    let enforced = (0..100).filter(|user| half.user(&format!("u{user}")).rule().is_some());
    assert!(reported.eq(enforced));
    // Shadow rules are not decided by the verdicts of enforced ones.
    let both = Gate::new(&set_of(&format!(
        "{{ id: a, mode: shadow, {notify} }}, {{ id: b, {notify} }}"
    )));
    let decision = both.check(&costing(4));
    let rules: Vec<_> = decision.uses().map(|it| it.rule.id().to_owned()).collect();
    assert_eq!(rules, ["b"]);
}

#[test]
fn an_override_has_the_share_of_its_own_limit() {
    let gate = Gate::new(&per_user(
        "bands: [ 10/h ], notify: [ 80% ], \
         overrides: [ { identity: ann, bands: [ 100/h ] }, { identity: eve, bands: [ 5/s ] } ]",
    ));
    let decision = gate.check(&costing(79));
    let used = decision.uses().next().unwrap();
    assert_eq!((used.used, used.band.capacity()), (79, 100));
    assert_eq!(gate.user("eve").uses().count(), 0);
}

#[test]
fn a_denied_request_reaches_nothing() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: per_user, bands: [ 10/h ], notify: [ 80% ] }, \
         { id: all, scope: global, bands: [ 12/h ] }",
    ));
    assert_eq!(use_of(&gate.check(&costing(7))), (7, Some(0)));
    let denied = gate.check(&costing(6));
    assert!(!denied.allowed());
    assert_eq!(use_of(&denied), (7, Some(7)));
    let other = RequestContext::builder().user("bob").cost(6).build();
    let denied = gate.check(&other);
    assert!(!denied.allowed(), "only the other rule denies");
    assert_eq!(use_of(&denied), (0, Some(0)));
}

#[test]
fn the_use_before_is_unknown_where_a_band_may_owe_or_leases() {
    let waits = Gate::new(&per_user(
        "bands: [ 10/m ], notify: [ 80% ], on_exceed: wait, max_wait: 1m",
    ));
    assert_eq!(use_of(&waits.check(&costing(10))), (10, Some(0)));
    let waiting = waits.check(&costing(2));
    assert!(waiting.delay() > Duration::ZERO);
    assert_eq!(use_of(&waiting), (10, None));

    let always = Gate::new(&per_user(
        "bands: [ 10/h ], notify: [ 80% ], charge: always",
    ));
    assert_eq!(use_of(&always.check(&costing(6))), (6, Some(0)));
    let denied = always.check(&costing(6));
    assert!(!denied.allowed());
    assert_eq!(use_of(&denied), (10, None));

    let leased = Gate::new(&per_user(
        "bands: [ 100/h ], notify: [ 80% ], lease: { share: 10%, for: 1s }",
    ));
    assert_eq!(use_of(&leased.check(&costing(80))), (80, None));

    let shaped = Gate::new(&per_user(
        "algorithm: leaky_bucket, shape: true, bands: [ 10/m ], notify: [ 80% ]",
    ));
    assert_eq!(use_of(&shaped.check(&costing(7))), (7, Some(0)));
    let queued = shaped.check(&costing(1));
    assert!(queued.delay() > Duration::ZERO);
    assert_eq!(
        use_of(&queued),
        (8, Some(7)),
        "a queue has room for what it delays"
    );
}

#[test]
fn several_requests_of_one_call_report_their_own_use() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: per_user, bands: [ 10/h, 100/d ], notify: [ 80% ] }, \
         { id: plain, scope: global, bands: [ 20/h ] }",
    ));
    let bob = RequestContext::builder().user("bob").cost(3).build();
    let contexts = [costing(5), bob, costing(4)];
    let decisions = ready(gate.limiter.check_all("s", &contexts));
    let first = |decision| uses(decision).remove(0);
    let expected = [(5, Some(0)), (3, Some(0)), (9, Some(5))];
    for (decision, (used, before)) in decisions.iter().zip(expected) {
        assert_eq!(first(decision), ("b0".into(), used, before));
        assert_eq!(decision.uses().count(), 2);
    }
    // One that passes alone is not charged with one that is denied.
    let decisions = ready(gate.limiter.check_all("s", &contexts));
    assert!(decisions[1].allowed() && !decisions[2].allowed());
    assert_eq!(first(&decisions[1]).2, Some(first(&decisions[1]).1));
}

#[test]
fn a_named_rule_reports_its_use() {
    let gate = Gate::new(&per_user("bands: [ 10/h ], notify: [ 80% ]"));
    let decision = ready(gate.limiter.consume("s", "r", &["ann"], Some(8))).unwrap();
    assert_eq!(use_of(&decision), (8, Some(0)));
    let used = decision.uses().next().unwrap();
    assert_eq!(used.at, Timestamp::from_micros(START).unwrap());
    assert_eq!(used.reset_after.get(), 8 * 6 * MINUTE);
}

#[test]
fn a_window_of_a_calendar_tells_when_it_ends() {
    let gate = Gate::new(&per_user(
        "algorithm: fixed_window, bands: [ { capacity: 10, calendar: day } ], notify: [ 80% ]",
    ));
    gate.at(START + HOUR);
    let decision = gate.check(&costing(8));
    assert_eq!(
        decision.uses().next().unwrap().reset_after.get(),
        DAY - HOUR
    );
}

#[test]
fn a_fallback_reports_nothing() {
    let rule = Rule::new("r")
        .per_user()
        .band(Quota::per_hour(10))
        .notify([Percent::new(10)]);
    let set = RuleSet::builder("s")
        .rule(rule)
        .on_error(OnError::Local)
        .build();
    let limiter = Limiter::new(set.unwrap(), Fragile::broken());
    let decision = ready(limiter.check("s", &costing(9)));
    assert_eq!(
        (decision.outcome().name(), decision.remaining()),
        ("fallback", Some(1))
    );
    assert_eq!(decision.uses().count(), 0);
    limiter.store().set_broken(false);
    let decision = ready(limiter.check("s", &costing(9)));
    assert_eq!(use_of(&decision), (9, Some(0)));
}

#[test]
fn an_action_rule_cannot_notify() {
    let faults =
        fluxgate_core::RuleSets::from_yaml(&set_of("{ id: r, action: deny, notify: [ 80% ] }"));
    let message = faults.unwrap_err().0[0].message.clone();
    assert!(
        message.starts_with("a rule with `action: deny` has no `notify`"),
        "{message}"
    );
    let built = RuleSet::builder("s")
        .rule(Rule::new("r").deny().notify([Percent::new(80)]))
        .build();
    assert!(built.unwrap_err().to_string().contains("has no `notify`"));
}

#[test]
fn shares_are_read_in_any_order_and_faults_have_their_place() {
    let rules = parse(&per_user("bands: [ 10/h ], notify: [ 100%, 99.50% ]"));
    assert!(
        rules.to_yaml().contains("notify: [100%, 99.5%]"),
        "{}",
        rules.to_yaml()
    );
    let shares = ["99.5%", "100%"].map(|share| share.parse::<Percent>().unwrap());
    assert_eq!(rules.get("s").unwrap().rules()[0].notify(), shares);
    for (notify, is_item, message) in [
        (
            "[ 80%, 101% ]",
            true,
            "`101%` is not a share from 0% to 100%",
        ),
        ("[ 80%, 80 ]", true, "`80` is not a share from 0% to 100%"),
        (
            "[ 80%, 0.00% ]",
            true,
            "a share of `notify` must be above 0%",
        ),
        ("[ 80%, 80.0% ]", true, "`80%` appears twice"),
        ("80%", false, "`notify` must be a list"),
        ("[]", false, "`notify` must not be an empty list"),
    ] {
        let text = per_user(&format!("bands: [ 10/h ], notify: {notify}"));
        let fault = fluxgate_core::RuleSets::from_yaml(&text)
            .unwrap_err()
            .0
            .remove(0);
        let at = text.find(notify).unwrap() + 1;
        let column = if is_item {
            at + notify.find(',').unwrap() + 2
        } else {
            at
        };
        assert_eq!(fault.position.column, column, "{notify}");
        assert!(
            fault.message.starts_with(message),
            "{notify}: {}",
            fault.message
        );
    }
}
