//! The embedded store: its bound, evictions and resets.

use std::time::Duration;

use fluxgate_core::limit::{Algorithm, Limit};
use fluxgate_core::memory::Retention;
use fluxgate_core::{
    Band, Checks, Clock, Group, LimiterError, ManualClock, MemoryStore, Mode, RequestContext,
    RuleNumber, Store, Subject, Verdicts, ready,
};

use crate::support::{ALGORITHMS, DAY, Gate, HOUR, NAMES, START, instant, per_user, set_of};

const MAX_KEYS: usize = 1_000;

fn small(rest: &str) -> Gate {
    Gate::with_store(&per_user(rest), MAX_KEYS, Retention::UntilFull)
}

/// Sends requests of this many new users.
fn flood(gate: &Gate, name: &str, users: usize) {
    for index in 0..users {
        gate.user(&format!("{name}-{index}"));
    }
}

#[test]
fn the_cap_holds_under_a_flood() {
    for algorithm in NAMES {
        let gate = small(&format!(
            "algorithm: {algorithm}, bands: [{{ capacity: 10, window: 1d }}]"
        ));
        for round in 0..20 {
            flood(&gate, &format!("f{round}"), MAX_KEYS);
            assert!(gate.keys() <= MAX_KEYS, "{algorithm}: {}", gate.keys());
        }
        assert!(gate.keys() >= MAX_KEYS / 2, "{algorithm}: {}", gate.keys());
    }
}

#[test]
fn the_cap_counts_keys_of_all_rules_and_bands() {
    let gate = Gate::with_store(
        &set_of(
            "{ id: r, scope: per_user, bands: [{ capacity: 10, window: 1d }, { capacity: 10, window: 1h }] },
             { id: log, scope: per_user, algorithm: sliding_log, bands: [{ capacity: 10, window: 1d }] }",
        ),
        MAX_KEYS,
        Retention::UntilFull,
    );
    flood(&gate, "f", 5 * MAX_KEYS);
    assert!(gate.keys() <= MAX_KEYS, "{}", gate.keys());
}

#[test]
fn used_up_limits_survive_a_flood() {
    for algorithm in NAMES {
        let gate = small(&format!(
            "algorithm: {algorithm}, bands: [{{ capacity: 5, window: 1d }}]"
        ));
        for victim in 0..50 {
            let user = format!("v{victim}");
            assert_eq!(gate.passed(9, |gate| gate.user(&user)), 5);
        }
        for hour in 0..20 {
            gate.at(START + hour * HOUR / 10);
            flood(&gate, &format!("f{hour}"), MAX_KEYS);
        }
        let forgotten = (0..50).filter(|victim| gate.left(&[&format!("v{victim}")])[0] == 5);
        assert_eq!(forgotten.count(), 0, "{algorithm}");
    }
}

/// Logs and buckets are stored in different places but count against one bound. When the
/// others have filled it, the few of one kind must not evict each other.
#[test]
fn a_used_up_log_survives_a_store_full_of_buckets() {
    survives_a_store_full_of_others("sliding_log", "token_bucket");
}

#[test]
fn a_used_up_bucket_survives_a_store_full_of_logs() {
    survives_a_store_full_of_others("token_bucket", "sliding_log");
}

#[track_caller]
fn survives_a_store_full_of_others(ours: &str, others: &str) {
    let gate = Gate::with_store(
        &set_of(&format!(
            "{{ id: r, scope: per_user, on_missing_key: skip, algorithm: {ours}, bands: [{{ capacity: 5, window: 1d }}] }},
             {{ id: other, scope: per_api_key, on_missing_key: skip, algorithm: {others}, bands: [{{ capacity: 100, window: 1d }}] }}"
        )),
        MAX_KEYS,
        Retention::UntilFull,
    );
    for index in 0..3 * MAX_KEYS {
        let context = RequestContext::builder()
            .api_key(format!("k{index}"))
            .build();
        assert!(gate.check(&context).allowed());
    }
    assert_eq!(gate.passed(9, |gate| gate.user("victim")), 5);
    // A few others that use a fifth of their quota, not even a flood.
    flood(&gate, "f", 100);
    assert!(
        !gate.user("victim").allowed(),
        "the used-up limit was forgotten"
    );
    assert!(gate.keys() <= MAX_KEYS, "{}", gate.keys());
}

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

/// Sends requests of this many new API keys, each of which uses its limit up.
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

/// A rule with one log of `capacity` an hour for each user.
fn logs(capacity: usize, max_log_events: usize) -> Gate {
    let rules = set_of(&format!(
        "{{ id: r, scope: per_user, on_missing_key: skip, algorithm: sliding_log, bands: [{{ capacity: {capacity}, window: 1h }}] }},
         {{ id: other, scope: per_api_key, on_missing_key: skip, algorithm: sliding_log, bands: [{{ capacity: {capacity}, window: 1h }}] }}"
    ));
    let clock = ManualClock::new(instant(START));
    let store = MemoryStore::new(clock.clone(), MAX_KEYS, Retention::UntilFull);
    Gate {
        clock,
        limiter: fluxgate_core::Limiter::new(
            fluxgate_core::RuleSets::from_yaml(&rules).unwrap(),
            store.max_log_events(max_log_events),
        ),
    }
}

/// FAULTS, "sliding logs": 3 million events on 30 keys.
#[test]
fn sliding_logs_count_against_a_memory_bound() {
    const EACH: usize = 100_000;
    const BOUND: usize = 100_000;
    let gate = logs(EACH, BOUND);
    let users: Vec<String> = (0..30).map(|user| format!("u{user}")).collect();
    for event in 0..EACH {
        gate.at(START + event as u64);
        for user in &users {
            assert!(gate.user(user).allowed());
        }
        assert!(gate.limiter.store().log_events() <= BOUND + 30 * 9);
    }
    // No unit is lost: nothing passes before the first could leave, and all return at
    // most an eighth of the window late.
    gate.at(START + HOUR - 1);
    assert!(users.iter().all(|user| !gate.user(user).allowed()));
    gate.at(START + EACH as u64 + HOUR + HOUR / 8);
    for user in &users {
        assert_eq!(gate.left(&[user]), [EACH as u64]);
    }
}

/// Compared with exact logs: never more in any window, and the last unit of a part leaves
/// at most an eighth of the window late.
#[test]
fn a_coarse_log_is_never_early_and_at_most_an_eighth_late() {
    let (exact, coarse) = (logs(40, 1_000_000), logs(40, 1));
    let mut admitted: Vec<u64> = Vec::new();
    let mut now = START;
    for step in 0..2_000_u64 {
        now += 17_000_000 + step % 7 * 10_000_001;
        exact.at(now);
        coarse.at(now);
        exact.user("u");
        if coarse.user("u").allowed() {
            admitted.push(now);
        }
        assert!(coarse.limiter.store().log_events() <= 9);
        let counted = |window: u64| admitted.iter().filter(|at| **at + window > now).count();
        let left = coarse.left(&["u"])[0] as usize;
        assert!(left <= 40 - counted(HOUR), "early");
        assert!(
            left >= 40_usize.saturating_sub(counted(HOUR + HOUR / 8)),
            "late"
        );
    }
    assert!(exact.limiter.store().log_events() > 9);
}

#[test]
fn events_of_deleted_logs_are_not_counted() {
    let gate = logs(100, 1_000);
    let events = || gate.limiter.store().log_events();
    let use_up = |name: &str, users: u64| {
        for user in 0..users {
            for event in 0..100 {
                gate.at(gate.clock.now().micros() + event % 2);
                assert!(gate.user(&format!("{name}{user}")).allowed());
            }
        }
    };
    use_up("a", 5);
    let before = events();
    assert!((200..=300).contains(&before), "{before}");
    assert_eq!(ready(gate.limiter.reset("s", "r", &["a0"])), Ok(1));
    assert!(events() < before);
    assert_eq!(gate.refund(&["a1"], 100), 100);
    assert_eq!(ready(gate.limiter.reset_rule("s", "r")), Ok(3));
    assert_eq!(events(), 0);

    // Logs that are full again make room for others, which stay exact.
    use_up("b", 20);
    assert!((700..=1_000).contains(&events()), "{}", events());
    gate.at(gate.clock.now().micros() + 3 * HOUR);
    use_up("c", 15);
    let kept: usize = (0..15)
        .map(|user| 100 - gate.left(&[&format!("c{user}")])[0] as usize)
        .sum();
    assert_eq!(kept, 1_500);
    flood(&gate, "d", 20 * MAX_KEYS);
    assert!(events() <= 1_000 + 9 * MAX_KEYS, "{}", events());
    assert!(gate.keys() <= MAX_KEYS);
}

/// One rule floods the logs, and those of another keep every event.
#[test]
fn a_flood_of_events_leaves_the_logs_of_another_rule_exact() {
    let gate = logs(1_000, 10_000);
    for event in 0..1_000 {
        gate.at(START + event);
        for key in 0..30 {
            let context = RequestContext::builder().api_key(format!("k{key}")).build();
            assert!(gate.check(&context).allowed());
        }
        assert!(gate.user("u").allowed());
    }
    assert!(gate.limiter.store().log_events() <= 10_000);
    for leaves in [0, 1, 500, 999] {
        gate.at(START + HOUR + leaves);
        assert_eq!(gate.left(&["u"]), [leaves + 1]);
    }
}

#[test]
fn full_keys_are_evicted_first() {
    for algorithm in NAMES {
        let gate = small(&format!(
            "algorithm: {algorithm}, bands: [{{ capacity: 100, window: 1h }}]"
        ));
        flood(&gate, "old", MAX_KEYS / 2);
        // Two windows later all of those are full again.
        gate.at(START + 2 * HOUR);
        flood(&gate, "new", MAX_KEYS / 2 - 100);
        flood(&gate, "newer", 200);
        let kept =
            (0..MAX_KEYS / 2 - 100).filter(|user| gate.left(&[&format!("new-{user}")]) == [99]);
        assert_eq!(kept.count(), MAX_KEYS / 2 - 100, "{algorithm}");
    }
}

#[test]
fn keys_are_counted() {
    let gate = Gate::new(&per_user(
        "bands: [{ capacity: 5, window: 1h }, { capacity: 9, window: 1d }]",
    ));
    assert!(gate.limiter.store().is_empty());
    flood(&gate, "u", 7);
    flood(&gate, "u", 7);
    assert_eq!(gate.keys(), 14);
    gate.peek_units(1);
    gate.check(&RequestContext::builder().user("free").cost(0).build());
    gate.check(&RequestContext::builder().user("never").cost(10).build());
    gate.state(&["looked-at"]);
    gate.refund(&["unknown"], 3);
    assert_eq!(gate.keys(), 14, "what consumes nothing leaves nothing");
}

#[test]
fn a_reset_returns_how_many_counters_had_state() {
    for algorithm in NAMES {
        let gate = Gate::new(&set_of(&format!(
            "{{ id: r, scope: per_user, algorithm: {algorithm}, bands: [{{ capacity: 2, window: 1h }}, {{ capacity: 9, window: 1d }}] }},
             {{ id: other, scope: per_user, bands: [{{ capacity: 9, window: 1d }}] }}"
        )));
        flood(&gate, "u", 10);
        let reset = |user: &str| ready(gate.limiter.reset("s", "r", &[user])).unwrap();
        gate.user("u-0");
        assert!(!gate.user("u-0").allowed());
        assert_eq!(reset("u-0"), 2, "{algorithm}");
        assert_eq!(reset("u-0"), 0);
        assert_eq!(reset("nobody"), 0);
        assert_eq!(gate.left(&["u-0"]), [2, 9]);
        assert_eq!(gate.left(&["u-1"]), [1, 8]);
        assert_eq!(
            ready(gate.limiter.reset_rule("s", "r")).unwrap(),
            18,
            "{algorithm}"
        );
        assert_eq!(ready(gate.limiter.reset_rule("s", "r")).unwrap(), 0);
        assert_eq!(gate.keys(), 10, "those of the other rule");
        assert_eq!(ready(gate.limiter.reset_rule("s", "other")).unwrap(), 10);
    }
}

#[test]
fn a_refund_returns_the_least_left_of_all_bands() {
    for algorithm in NAMES {
        let gate = Gate::new(&per_user(&format!(
            "algorithm: {algorithm}, bands: [{{ capacity: 10, window: 1h }}, {{ capacity: 6, window: 1d }}]"
        )));
        let spend = RequestContext::builder().user("u").cost(5).build();
        gate.check(&spend);
        assert_eq!(gate.refund(&["u"], 2), 3, "{algorithm}");
        assert_eq!(gate.left(&["u"]), [7, 3]);
        assert_eq!(gate.refund(&["u"], 0), 3);
        assert_eq!(gate.refund(&["u"], u64::MAX), 6, "never above the capacity");
        assert_eq!(gate.left(&["u"]), [10, 6]);
        let full = gate.state(&["u"]);
        assert!(full.iter().all(|state| state.reset_after.get() == 0));
    }
}

#[test]
fn states_name_their_bands() {
    let gate = Gate::new(&per_user(
        "algorithm: fixed_window, bands: [{ id: a, capacity: 4, window: 1h }, { capacity: 6, window: 1d }]",
    ));
    gate.user("u");
    let states = gate.state(&["u"]);
    let shown: Vec<_> = states
        .iter()
        .map(|state| {
            (
                state.band.id(),
                state.band.limit().capacity(),
                state.remaining,
                state.reset_after.get(),
            )
        })
        .collect();
    assert_eq!(shown, [("a", 4, 3, HOUR), ("b1", 6, 5, DAY)]);
}

#[test]
fn calls_about_unknown_things_are_errors() {
    let gate = Gate::new(&per_user("bands: [{ capacity: 1, window: 1h }]"));
    let limiter = &gate.limiter;
    let unknown_set = ready(limiter.state("t", "r", &["u"])).unwrap_err();
    assert_eq!(unknown_set, LimiterError::UnknownRuleSet("t".into()));
    let unknown_rule = ready(limiter.refund("s", "q", &["u"], 1)).unwrap_err();
    assert!(matches!(unknown_rule, LimiterError::UnknownRule { .. }));
    for identity in [&[][..], &["u", "v"], &[""]] {
        let error = ready(limiter.reset("s", "r", identity)).unwrap_err();
        assert!(matches!(error, LimiterError::Identity(_)), "{identity:?}");
    }
}

/// One counter that several checks of one call use.
struct Meeting {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
    bands: [Band; 1],
}

impl Meeting {
    fn new(algorithm: Algorithm) -> Self {
        let limit = Limit::builder(algorithm, 10, Duration::from_secs(3600));
        let clock = ManualClock::new(instant(START));
        Self {
            store: MemoryStore::new(clock.clone(), 100, Retention::Forever),
            clock,
            bands: [Band::new("b0", limit.build().unwrap())],
        }
    }

    fn ask(&self, costs: &[u64], mode: Mode) -> Verdicts {
        let mut checks = Checks::new(mode);
        for cost in costs {
            let subject = Subject {
                rule: RuleNumber::NONE,
                bytes: b"subject",
            };
            checks.push(subject, &self.bands, *cost, Group::ENFORCED);
        }
        ready(self.store.decide(&checks)).unwrap()
    }

    fn passes(&self, costs: &[u64], mode: Mode) -> bool {
        let verdicts = self.ask(costs, mode);
        verdicts.iter().all(|verdict| verdict.passes())
    }

    fn left(&self) -> u32 {
        self.ask(&[0], Mode::Peek)[0].remaining
    }
}

#[test]
fn checks_of_one_counter_add_up() {
    for algorithm in ALGORITHMS {
        let meeting = Meeting::new(algorithm);
        assert!(meeting.passes(&[3, 2], Mode::Take), "{algorithm:?}");
        assert_eq!(meeting.left(), 5, "{algorithm:?}");
        assert!(!meeting.passes(&[3, 3], Mode::Take), "{algorithm:?}");
        assert!(!meeting.passes(&[3, 3], Mode::Peek), "{algorithm:?}");
        assert_eq!(meeting.left(), 5, "{algorithm:?}");
        assert!(meeting.passes(&[2, 2, 1], Mode::Take), "{algorithm:?}");
        assert_eq!(meeting.left(), 0, "{algorithm:?}");
    }
}

#[test]
fn checks_of_one_counter_are_corrected_once() {
    for algorithm in ALGORITHMS {
        let meeting = Meeting::new(algorithm);
        assert!(meeting.passes(&[10], Mode::Take));
        meeting.clock.set(instant(START - 10 * HOUR));
        assert!(!meeting.passes(&[1, 1], Mode::Take), "{algorithm:?}");
        assert_eq!(meeting.left(), 0, "{algorithm:?}: the gate was opened");
    }
}

#[test]
fn limits_without_a_rule_are_charged_by_key() {
    let limit = Limit::builder(Algorithm::TokenBucket, 2, Duration::from_secs(60))
        .build()
        .unwrap();
    let band = Band::new("any", limit);
    let clock = ManualClock::new(instant(START));
    let store = MemoryStore::new(clock.clone(), 100, Retention::UntilFull);
    assert!(store.take("a", &band, 2).passes());
    assert!(!store.take("a", &band, 1).passes());
    assert!(store.take("b", &band, 1).passes());
    clock.set(instant(START + HOUR));
    assert!(store.take("a", &band, 2).passes());
    assert!(!store.take_at("a", &band, 1, instant(START + HOUR)).passes());
    assert_eq!(store.len(), 2);
}
