//! The memory store: the bound on the events of sliding logs.

use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;
use fluxgate_core::{Clock, ManualClock, MemoryStore, RequestContext};

use crate::memory::{MAX_KEYS, flood};
use crate::support::{Gate, HOUR, START, instant, set_of};

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
        let _ = exact.user("u");
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
