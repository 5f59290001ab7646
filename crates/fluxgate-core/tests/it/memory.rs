//! The embedded store: its bound, evictions and resets.

use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Checks, Group, Mode, Subject, Verdicts};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, Band, KeyedLimiter, Limit, LimiterError, ManualClock, MemoryStore, Quota,
    RequestContext, Store,
};

use crate::support::{
    ALGORITHMS, DAY, Gate, HOUR, NAMES, START, instant, micros, per_user, set_of,
};

pub(crate) const MAX_KEYS: usize = 1_000;

fn small(rest: &str) -> Gate {
    Gate::with_store(&per_user(rest), MAX_KEYS, Retention::UntilFull)
}

/// Sends requests of this many new users.
pub(crate) fn flood(gate: &Gate, name: &str, users: usize) {
    for index in 0..users {
        let _ = gate.user(&format!("{name}-{index}"));
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
    let _ = gate.peek_units(1);
    let _ = gate.check(&RequestContext::builder().user("free").cost(0).build());
    let _ = gate.check(&RequestContext::builder().user("never").cost(10).build());
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
        let _ = gate.user("u-0");
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
        let _ = gate.check(&spend);
        assert_eq!(gate.refund(&["u"], 2), 3, "{algorithm}");
        assert_eq!(gate.left(&["u"]), [7, 3]);
        assert_eq!(gate.refund(&["u"], 0), 3);
        assert_eq!(gate.refund(&["u"], u64::MAX), 6, "never above the capacity");
        assert_eq!(gate.left(&["u"]), [10, 6]);
        let full = gate.state(&["u"]);
        assert!(full.iter().all(|state| micros(state.reset_after) == 0));
    }
}

#[test]
fn states_name_their_bands() {
    let gate = Gate::new(&per_user(
        "algorithm: fixed_window, bands: [{ id: a, capacity: 4, window: 1h }, { capacity: 6, window: 1d }]",
    ));
    let _ = gate.user("u");
    let states = gate.state(&["u"]);
    let shown: Vec<_> = states
        .iter()
        .map(|state| {
            (
                state.band.id(),
                state.band.limit().capacity(),
                state.remaining,
                micros(state.reset_after),
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
fn a_store_on_any_clock_can_be_bounded() {
    let store = MemoryStore::with_clock(ManualClock::default());
    let store = store.max_log_events(5).max_keys(100);
    let limiter = KeyedLimiter::with_store(Quota::per_hour(1), store);
    for key in 0..1_000 {
        assert!(limiter.check(&key).is_ok());
    }
    assert!((90..=110).contains(&limiter.len()), "{}", limiter.len());
    let log = Quota::per_hour(1_000).algorithm(Algorithm::SlidingLog);
    let store = MemoryStore::with_clock(ManualClock::default());
    let limiter = KeyedLimiter::with_store(log, store.max_log_events(5).max_keys(100));
    for _ in 0..100 {
        assert!(limiter.check("a").is_ok());
    }
    assert!(limiter.store().log_events() <= 10);
}
