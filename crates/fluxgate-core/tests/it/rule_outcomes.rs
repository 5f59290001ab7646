//! The outcome of each rule that took part in a decision.

use fluxgate_core::task::ready;
use fluxgate_core::{Decision, Limiter, LimiterBuilder, ManualClock, RequestContext, RuleSets};

use crate::store_failures::Fragile;
use crate::support::{Gate, MINUTE, START, parse, set_of};

/// Returns each rule with its outcome, as `rule outcome` or `rule outcome band`.
fn outcomes(decision: &Decision) -> Vec<String> {
    let outcomes = decision.rule_outcomes();
    let texts = outcomes.map(|it| match it.band {
        Some(band) => format!("{} {} {}", it.rule.id(), it.outcome, band.id()),
        None => format!("{} {}", it.rule.id(), it.outcome),
    });
    texts.collect()
}

fn user(name: &str) -> RequestContext<'_> {
    RequestContext::builder().user(name).build()
}

#[test]
fn every_charged_rule_counts_and_only_refusing_rules_of_a_denial_do() {
    let gate = Gate::new(&set_of(
        "{ id: wide, scope: global, bands: [9/m] },
         { id: two, scope: global, bands: [ { id: minute, capacity: 2, window: 1m }, { id: hour, capacity: 2, window: 1h } ] },
         { id: also, scope: global, bands: [ { id: minute, capacity: 2, window: 1m } ] }",
    ));
    assert_eq!(
        outcomes(&gate.take(2)),
        ["wide allowed", "two allowed", "also allowed"]
    );
    // The hour is the longer wait, and is reported.
    assert_eq!(
        outcomes(&gate.take(1)),
        ["two denied hour", "also denied minute"]
    );
    assert!(gate.take(0).rule_outcomes().all(|it| !it.refused));
    assert!(gate.take(1).rule_outcomes().all(|it| it.refused));
}

#[test]
fn never_is_that_of_the_rule_and_not_of_the_request() {
    let gate = Gate::new(&set_of(
        "{ id: small, scope: global, bands: [3/m] },
         { id: wide, scope: global, bands: [9/m] }",
    ));
    let _ = gate.take(3);
    assert_eq!(
        outcomes(&gate.take(8)),
        ["small never b0", "wide denied b0"]
    );
    assert_eq!(outcomes(&gate.take(1)), ["small denied b0"]);
}

#[test]
fn a_missing_key_refuses_without_a_band() {
    let gate = Gate::new(&set_of(
        "{ id: keyed, scope: per_user, on_missing_key: deny, bands: [3/m] },
         { id: all, scope: global, bands: [3/m] }",
    ));
    assert_eq!(outcomes(&gate.take(1)), ["keyed never"]);
    assert_eq!(
        outcomes(&gate.check(&user("ann"))),
        ["keyed allowed", "all allowed"]
    );
}

#[test]
fn shadow_rules_and_identities_outside_a_rollout_count_as_shadow() {
    for shadow in ["mode: shadow", "rollout: 0%"] {
        let gate = Gate::new(&set_of(&format!(
            "{{ id: new, scope: per_user, {shadow}, bands: [1/h] }},
             {{ id: old, scope: per_user, bands: [2/h] }}"
        )));
        let check = || outcomes(&gate.check(&user("ann")));
        assert_eq!(check(), ["old allowed", "new allowed"]);
        assert_eq!(check(), ["old allowed", "new shadow_denied b0"]);
        // It is not decided, so it does not count.
        assert_eq!(check(), ["old denied b0"]);
        let shadow = gate.check(&user("bob"));
        assert!(shadow.rule_outcomes().all(|it| !it.refused));
    }
    let gate = Gate::new(&set_of(
        "{ id: blocked, action: deny, mode: shadow, match: { user: eve } }",
    ));
    assert_eq!(
        outcomes(&gate.check(&user("eve"))),
        ["blocked shadow_denied"]
    );
}

#[test]
fn an_action_counts_alone() {
    let gate = Gate::new(&set_of(
        "{ id: limit, scope: per_user, bands: [1/h] },
         { id: blocked, action: deny, match: { user: eve } },
         { id: staff, action: allow, match: { user: ann } }",
    ));
    assert_eq!(outcomes(&gate.check(&user("eve"))), ["blocked forbidden"]);
    assert_eq!(outcomes(&gate.check(&user("ann"))), ["staff exempt"]);
    assert_eq!(outcomes(&gate.check(&user("bob"))), ["limit allowed"]);
}

#[test]
fn a_rule_that_charges_always_counts_when_others_refuse() {
    let gate = Gate::new(&set_of(
        "{ id: late, scope: global, charge: always, bands: [9/m] },
         { id: one, scope: global, bands: [1/m] }",
    ));
    assert_eq!(outcomes(&gate.take(1)), ["late allowed", "one allowed"]);
    assert_eq!(outcomes(&gate.take(1)), ["late allowed", "one denied b0"]);
    // It refuses by itself, and is charged nevertheless: once.
    assert_eq!(outcomes(&gate.take(8)), ["late denied b0", "one never b0"]);
}

#[test]
fn a_wait_that_becomes_a_denial_counts_for_the_rules_that_delayed() {
    let gate = Gate::new(&set_of(
        "{ id: slow, scope: global, on_exceed: wait, max_wait: 1h, bands: [1/m] },
         { id: wide, scope: global, bands: [9/m] }",
    ));
    let _ = gate.take(1);
    let waits = gate.at(START).take(1);
    assert_eq!(waits.delay_micros().get(), MINUTE);
    assert_eq!(outcomes(&waits), ["slow allowed", "wide allowed"]);
    let denied = waits.into_denied();
    assert_eq!(outcomes(&denied), ["slow denied b0"]);
    assert!(denied.rule_outcomes().all(|it| it.refused));
}

#[test]
fn of_a_refused_call_only_what_refuses_counts() {
    let gate = Gate::new(&set_of(
        "{ id: a, key: ['attr:a'], bands: [5/m] },
         { id: b, key: ['attr:b'], bands: [1/m] },
         { id: late, key: ['attr:a'], charge: always, bands: [9/m] },
         { id: blocked, action: deny, match: { attributes: { a: bad } } }",
    ));
    let with = |name: &'static str, value: &'static str| {
        let context = RequestContext::builder().attribute(name, value);
        context.whole_keys_only().build()
    };
    let check = |requests: &[RequestContext<'_>]| -> Vec<_> {
        let decisions = ready(gate.limiter.check_all("s", requests));
        decisions.iter().map(outcomes).collect()
    };
    let both = [with("a", "1"), with("b", "1"), with("c", "1")];
    let none = Vec::<String>::new();
    assert_eq!(
        check(&both),
        [
            vec!["a allowed".into(), "late allowed".into()],
            vec!["b allowed".into()],
            none.clone()
        ]
    );
    assert_eq!(
        check(&both),
        [
            vec!["late allowed".to_owned()],
            vec!["b denied b0".into()],
            none.clone()
        ]
    );
    let one_is_forbidden = [with("a", "1"), with("a", "bad")];
    assert_eq!(
        check(&one_is_forbidden),
        [none, vec!["blocked forbidden".to_owned()]]
    );
}

#[test]
fn a_decision_of_the_fallback_counts_each_rule_as_fallback() {
    let rules = "{ id: wide, scope: global, bands: [9/m] },
        { id: one, scope: global, bands: [1/m] },
        { id: seen, scope: global, mode: shadow, bands: [1/m] }";
    let limiter = limiter_without_store(parse(&set_of(rules)));
    let check = || outcomes(&ready(limiter.check("s", &RequestContext::default())));
    assert_eq!(check(), ["wide fallback", "one fallback", "seen fallback"]);
    assert_eq!(check(), ["one fallback b0"]);
}

#[test]
fn without_a_rule_that_decides_there_is_no_outcome_of_a_rule() {
    for (on_error, outcome) in [("allow", "failed_open"), ("deny", "failed_closed")] {
        let rules = format!(
            "rule_sets: {{ s: {{ on_error: {on_error}, rules: [ {{ id: r, scope: global, bands: [1/m] }} ] }} }}"
        );
        let limiter = limiter_without_store(parse(&rules));
        let decision = ready(limiter.check("s", &RequestContext::default()));
        assert_eq!(decision.outcome().name(), outcome);
        assert_eq!(outcomes(&decision), [""; 0]);
    }
    let gate = Gate::new(&set_of(
        "{ id: posts, scope: global, match: { methods: [POST] }, bands: [1/m] }",
    ));
    assert_eq!(outcomes(&gate.take(1)), [""; 0]);
    for on_missing in ["allow", "deny"] {
        let rules = parse(&format!(
            "on_missing_rule_set: {on_missing}\nrule_sets: {{}}"
        ));
        let limiter = limiter_without_store(rules);
        let decision = ready(limiter.check("elsewhere", &RequestContext::default()));
        assert_eq!(decision.allowed(), on_missing == "allow");
        assert_eq!(outcomes(&decision), [""; 0]);
    }
}

fn limiter_without_store(rules: RuleSets) -> Limiter<Fragile> {
    let builder: LimiterBuilder<Fragile> = Limiter::builder(rules, Fragile::broken());
    builder.build()
}

/// The rules that count for a denial are those that refuse, whatever the numbers.
#[test]
fn all_that_refuse_count_and_none_twice() {
    let clock = ManualClock::default();
    let rules: Vec<_> = (1..=6)
        .map(|capacity| format!("{{ id: r{capacity}, scope: global, bands: [{capacity}/m] }}"))
        .collect();
    let store = fluxgate_core::MemoryStore::with_clock(clock);
    let limiter = Limiter::new(parse(&set_of(&rules.join(", "))), store);
    for request in 1..=7_usize {
        let decision = ready(limiter.check("s", &RequestContext::default()));
        let counted: Vec<_> = decision.rule_outcomes().map(|it| it.rule.id()).collect();
        // The first rule denies from the second request on, and nothing more is charged.
        let expected: &[&str] = match request {
            1 => &["r1", "r2", "r3", "r4", "r5", "r6"],
            _ => &["r1"],
        };
        assert_eq!(counted, expected);
    }
}
