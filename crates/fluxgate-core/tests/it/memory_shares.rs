//! The memory store: each rule has its share of the keys.

use fluxgate_core::RequestContext;
use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;

use crate::memory::{MAX_KEYS, flood};
use crate::support::{Gate, HOUR, NAMES, START, per_user, set_of};

/// A rule by user and another by API key, with the given bodies.
fn two_rules(ours: &str, theirs: &str, max_keys: usize) -> Gate {
    Gate::with_store(
        &set_of(&format!(
            "{{ id: r, scope: per_user, on_missing_key: skip, {ours} }},
             {{ id: other, scope: per_api_key, on_missing_key: skip, {theirs} }}"
        )),
        max_keys,
        Retention::UntilFull,
    )
}

/// Uses up the limits of this many new API keys.
fn flood_used_up(gate: &Gate, name: &str, keys: std::ops::Range<usize>, cost: u64) {
    for index in keys {
        let key = format!("{name}-{index}");
        let context = RequestContext::builder().api_key(key).cost(cost).build();
        assert!(gate.check(&context).allowed());
    }
}

/// Lets users `v0` to `vN` of the rule `r` spend `cost` each.
fn spend(gate: &Gate, users: usize, cost: u64) {
    for index in 0..users {
        let user = format!("v{index}");
        let context = RequestContext::builder().user(user).cost(cost).build();
        assert!(gate.check(&context).allowed());
    }
}

/// Returns how many of these users have exactly this much left.
fn with_left(gate: &Gate, users: usize, left: u64) -> usize {
    let users = (0..users).map(|index| format!("v{index}"));
    users.filter(|user| gate.left(&[user]) == [left]).count()
}

/// FAULTS, "keys used up by a flood".
#[test]
fn keys_used_up_by_a_flood_evict_no_key_of_another_rule() {
    const MILLION: usize = 1_000_000;
    let gate = two_rules(
        "bands: [{ capacity: 100, window: 1h }]",
        "bands: [{ capacity: 5, window: 1d }]",
        MILLION,
    );
    // Hardly used, so a flood would evict them first if there were only one rule.
    spend(&gate, 1_000, 1);
    flood_used_up(&gate, "f", 0..3 * MILLION, 5);
    assert_eq!(with_left(&gate, 1_000, 99), 1_000);
    assert!(gate.keys() <= MILLION, "{}", gate.keys());
}

#[test]
fn a_flood_evicts_no_key_of_another_rule_whatever_the_algorithm() {
    for ours in NAMES {
        for theirs in NAMES {
            let gate = two_rules(
                &format!("algorithm: {ours}, bands: [{{ capacity: 100, window: 1h }}]"),
                &format!("algorithm: {theirs}, bands: [{{ capacity: 5, window: 1d }}]"),
                MAX_KEYS,
            );
            spend(&gate, MAX_KEYS / 2, 1);
            flood_used_up(&gate, "f", 0..4 * MAX_KEYS, 5);
            let kept = with_left(&gate, MAX_KEYS / 2, 99);
            assert_eq!(kept, MAX_KEYS / 2, "{ours} under a flood of {theirs}");
            assert!(gate.keys() <= MAX_KEYS, "{}", gate.keys());
        }
    }
}

/// Three threads flood while keys of the other rule are added.
#[test]
fn a_flood_of_several_threads_evicts_no_key_of_another_rule() {
    let gate = two_rules(
        "bands: [{ capacity: 100, window: 1h }]",
        "bands: [{ capacity: 5, window: 1d }]",
        MAX_KEYS,
    );
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let gate = &gate;
            scope.spawn(move || {
                flood_used_up(gate, &format!("f{thread}"), 0..20 * MAX_KEYS, 5);
            });
        }
        spend(&gate, MAX_KEYS / 2, 1);
    });
    assert_eq!(with_left(&gate, MAX_KEYS / 2, 99), MAX_KEYS / 2);
    // One key more for each thread, until the next eviction.
    assert!(gate.keys() <= MAX_KEYS + 4, "{}", gate.keys());
    let [ours, theirs] = ["r", "other"].map(|rule| ready(gate.limiter.reset_rule("s", rule)));
    assert_eq!(ours, Ok(MAX_KEYS as u64 / 2));
    assert!(theirs.unwrap() >= MAX_KEYS as u64 / 2 - 4);
    assert!(gate.limiter.store().is_empty());
}

/// The store is full of one rule's keys when another one starts.
#[test]
fn a_rule_below_its_share_takes_from_rules_above_theirs() {
    let gate = two_rules(
        "bands: [{ capacity: 100, window: 1h }]",
        "bands: [{ capacity: 5, window: 1d }]",
        MAX_KEYS,
    );
    flood_used_up(&gate, "f", 0..2 * MAX_KEYS, 5);
    assert_eq!(gate.keys(), MAX_KEYS, "a rule alone has the whole store");
    spend(&gate, MAX_KEYS / 2, 1);
    assert_eq!(with_left(&gate, MAX_KEYS / 2, 99), MAX_KEYS / 2);
    flood_used_up(&gate, "g", 0..2 * MAX_KEYS, 5);
    assert_eq!(with_left(&gate, MAX_KEYS / 2, 99), MAX_KEYS / 2);
    assert_eq!(gate.keys(), MAX_KEYS);
}

#[test]
fn two_floods_share_the_store() {
    let gate = two_rules(
        "bands: [{ capacity: 10, window: 1d }]",
        "bands: [{ capacity: 5, window: 1d }]",
        MAX_KEYS,
    );
    for round in 0..10 {
        flood(&gate, &format!("f{round}"), MAX_KEYS);
        flood_used_up(&gate, &format!("g{round}"), 0..MAX_KEYS, 5);
    }
    let [ours, theirs] = ["r", "other"].map(|rule| ready(gate.limiter.reset_rule("s", rule)));
    assert_eq!((ours, theirs), (Ok(500), Ok(500)));
}

/// Keys that are full again and rules that are reset leave room for others.
#[test]
fn rules_without_keys_have_no_share() {
    let gate = two_rules(
        "bands: [{ capacity: 100, window: 1d }]",
        "bands: [{ capacity: 5, window: 1h }]",
        MAX_KEYS,
    );
    flood_used_up(&gate, "f", 0..MAX_KEYS, 5);
    gate.at(START + 2 * HOUR);
    flood(&gate, "g", 4 * MAX_KEYS);
    let reset = |rule| ready(gate.limiter.reset_rule("s", rule)).unwrap();
    assert_eq!((reset("other"), reset("r")), (0, 1_000), "full again");

    flood(&gate, "h", MAX_KEYS);
    flood_used_up(&gate, "i", 0..MAX_KEYS, 5);
    assert_eq!(reset("other"), 500);
    flood(&gate, "j", MAX_KEYS);
    assert_eq!((reset("other"), reset("r")), (0, 1_000), "reset");
}

/// With many rules the keys of each are rare. A rule with its share still evicts its
/// own, and keeps those that are used most.
#[test]
fn a_flood_under_one_of_many_rules_stays_within_it() {
    const RULES: usize = 200;
    const MOST: usize = 20 * RULES;
    let rules: Vec<String> = (0..RULES)
        .map(|rule| {
            format!(
                "{{ id: r{rule}, key: [\"attr:a{rule}\"], on_missing_key: skip, bands: [{{ capacity: 10, window: 1d }}] }}"
            )
        })
        .collect();
    let gate = Gate::with_store(&set_of(&rules.join(", ")), MOST, Retention::UntilFull);
    let spend = |rule: usize, identity: usize, cost: u64| {
        let context = RequestContext::builder()
            .attribute(format!("a{rule}"), format!("i{identity}"))
            .cost(cost)
            .build();
        assert!(gate.check(&context).allowed());
    };
    let left = |rule: usize, identity: usize| {
        let identity = format!("i{identity}");
        let state = ready(gate.limiter.state("s", &format!("r{rule}"), &[&identity]));
        state.unwrap()[0].remaining
    };
    for rule in 0..RULES {
        for identity in 0..20 {
            let cost = if identity < 5 { 10 } else { 1 };
            spend(rule, identity, cost);
        }
    }
    for identity in 20..1_000 {
        spend(7, identity, 1);
    }
    assert_eq!(gate.keys(), MOST);
    for rule in (0..RULES).filter(|rule| *rule != 7) {
        assert!((0..5).all(|identity| left(rule, identity) == 0));
        assert!((5..20).all(|identity| left(rule, identity) == 9));
    }
    assert!((0..5).all(|identity| left(7, identity) == 0), "used up");
}

/// FAULTS, "keys used up by a flood": the flood is under the same rule.
#[test]
fn limits_of_longer_windows_survive_keys_used_up_by_a_flood() {
    for algorithm in NAMES {
        let gate = Gate::with_store(
            &per_user(&format!(
                "algorithm: {algorithm}, bands: [{{ capacity: 5, window: 1h }}],
                 overrides: [{}]",
                (0..100)
                    .map(|user| format!(
                        "{{ identity: v{user}, bands: [{{ capacity: 100, window: 30d }}] }}"
                    ))
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
            MAX_KEYS,
            Retention::UntilFull,
        );
        // From 80 to 100 of 100.
        for user in 0..100 {
            let cost = 80 + user % 21;
            let context = RequestContext::builder().user(format!("v{user}"));
            assert!(gate.check(&context.cost(cost).build()).allowed());
        }
        for index in 0..20 * MAX_KEYS {
            let context = RequestContext::builder().user(format!("f{index}"));
            assert!(gate.check(&context.cost(5).build()).allowed());
        }
        let kept = (0..100).filter(|user| gate.left(&[&format!("v{user}")]) == [20 - user % 21]);
        assert_eq!(kept.count(), 100, "{algorithm}");
    }
}
