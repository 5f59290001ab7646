//! The known mistakes of other limiters, each made impossible by name. The
//! comment says what the other one did.

use std::sync::Arc;

use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;
use fluxgate_core::{Limiter, ManualClock, MemoryStore, RequestContext};

use crate::support::{
    DAY, Gate, MILLI, MINUTE, NAMES, SECOND, START, at_once, global, instant, parse, per_user,
    retry, set_of, violated,
};

/// How many of `requests` pass, `pause` apart from `START` on.
fn passed_in_a_row(gate: &Gate, requests: u64, pause: u64) -> usize {
    let times = (0..requests).map(|index| START + index * pause);
    times.filter(|at| gate.at(*at).take(1).allowed()).count()
}

// OpenFluxGate floored the refill and then stamped the time: 308 passed.
#[test]
fn openfluxgate_fractions_are_not_lost() {
    let gate = Gate::new(&global("bands: [{ capacity: 10, window: 1s }]"));
    // A bucket of ten gives 0.01 tokens more than it gets at each of them.
    let calls = 60 * SECOND / (99 * MILLI);
    assert_eq!(passed_in_a_row(&gate, calls, 99 * MILLI), 606);
}

// OpenFluxGate asked one band after the other, and a later denial left the
// earlier ones charged: 19 were served and the minute was used up.
#[test]
fn openfluxgate_an_earlier_band_is_not_charged_when_a_later_one_denies() {
    let gate = Gate::new(&global(
        "bands: [{ capacity: 100, window: 1m }, { capacity: 10, window: 1s }]",
    ));
    let passed = passed_in_a_row(&gate, 100, 10 * MILLI);
    assert_eq!(passed, 19, "10 at once and 10 a second");
    // 19 of 100 are gone, and 0.99 s have refilled 1.65 of them.
    assert_eq!(gate.left(&[])[0], 82);
}

// OpenFluxGate let no state live for longer than a day.
#[test]
fn openfluxgate_thirty_day_quota_is_not_forgotten_after_a_day() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 1000, window: 30d }}]");
        let gate = Gate::with_store(&per_user(&rule), 1_000, Retention::UntilFull);
        // A month is 30 days here, and the first one begins 20 days before the start.
        let spender = RequestContext::builder().user("spender").cost(1000).build();
        assert!(gate.at(START).check(&spender).allowed(), "{algorithm}");
        for day in 1..10 {
            // Others come and go meanwhile.
            gate.at(START + day * DAY);
            for index in 0..300 {
                let _ = gate.user(&format!("{day}-{index}"));
            }
            let all = gate.check(&spender);
            assert!(!all.allowed(), "{algorithm}, day {day}");
            let left = gate.left(&["spender"])[0];
            let refilled = if algorithm.ends_with("bucket") {
                1000 * day / 30
            } else {
                0
            };
            assert_eq!(left, refilled, "{algorithm}, day {day}");
        }
    }
}

// OpenFluxGate kept bands without a label under one key: 5 passed in all.
#[test]
fn openfluxgate_bands_without_a_label_do_not_share_a_counter() {
    let gate = Gate::new(&global(
        "bands: [{ capacity: 10, window: 1s }, { capacity: 100, window: 1m }]",
    ));
    let passed = passed_in_a_row(&gate, 120 * 20, SECOND / 20);
    // 100 at once and 100 a minute, all but the last 50 ms.
    assert_eq!(passed, 299);
}

// OpenFluxGate told a finite wait to a request that can never pass.
#[test]
fn openfluxgate_cost_above_capacity_is_never() {
    for rest in [
        "",
        "on_exceed: wait, max_wait: 366d,",
        "algorithm: sliding_log,",
    ] {
        let gate = Gate::new(&global(&format!(
            "{rest} bands: [{{ capacity: 10, window: 1s }}]"
        )));
        for cost in [11, 1_000_000, u64::MAX] {
            let decision = gate.take(cost);
            assert!(!decision.allowed());
            assert_eq!(decision.outcome().name(), "never");
            assert_eq!(retry(&decision), None);
            assert_eq!(decision.remaining(), Some(10), "nothing was taken");
        }
    }
}

// throttlecrab let a state with a burst of one expire at once: 1000 of 1000 passed.
#[test]
fn throttlecrab_burst_of_one_is_a_limit() {
    for algorithm in ["token_bucket", "gcra", "leaky_bucket"] {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 1, window: 60s }}]");
        let gate = Gate::with_store(&global(&rule), 1_000, Retention::UntilFull);
        assert_eq!(passed_in_a_row(&gate, 1000, 59 * MILLI), 1);
        assert!(!gate.at(START + MINUTE - 1).take(1).allowed());
        assert!(gate.at(START + MINUTE).take(1).allowed());
    }
}

// throttlecrab clamped the arrival time too low: 17 passed at once.
#[test]
fn throttlecrab_burst_of_ten_is_ten_at_once() {
    let gate = Gate::new(&global("bands: [{ capacity: 10, window: 60s }]"));
    assert_eq!(gate.at(START).passed(100, |gate| gate.take(1)), 10);
    assert_eq!(gate.at(START + MINUTE).passed(100, |gate| gate.take(1)), 10);
}

// Traefik believed the clock of whichever proxy asked, and the time in the
// state went back with it: two proxies a second apart meant no limit at all.
#[test]
fn traefik_two_clocks_a_second_apart() {
    // A proxy has no say in the time: it asks, and the store's clock decides.
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 10, window: 1h }}]");
        let clock = ManualClock::new(instant(START));
        let store = Arc::new(MemoryStore::new(clock, 100, Retention::UntilFull));
        let proxies = [(); 2].map(|()| Limiter::new(parse(&global(&rule)), store.clone()));
        let context = RequestContext::default();
        let decisions = (0..100).map(|index| ready(proxies[index % 2].check("s", &context)));
        let passed = decisions.filter(|decision| decision.allowed());
        assert_eq!(passed.count(), 10, "{algorithm}");
    }
    // And where one clock does swing by a second, windows and logs of at least
    // a second go by the later time.
    for algorithm in ["fixed_window", "sliding_log", "sliding_window"] {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 10, window: 1s }}]");
        let gate = Gate::new(&global(&rule));
        let swings = (0..2_000).map(|index| START + index * 5 * MILLI + index % 2 * SECOND);
        let passed = swings.filter(|at| gate.at(*at).take(1).allowed()).count();
        // Ten seconds touch eleven windows.
        assert!((90..=110).contains(&passed), "{algorithm}: {passed}");
    }
}

// Gubernator threw the fraction away whenever somebody looked at an empty bucket.
#[test]
fn gubernator_look_keeps_the_fraction() {
    let gate = Gate::new(&global(
        "algorithm: leaky_bucket, bands: [{ capacity: 3, window: 1s }]",
    ));
    let _ = gate.at(START).take(3);
    // A unit takes 333,333 µs and a third.
    for now in (START..START + 333_334).step_by(1_000) {
        assert!(!gate.at(now).peek_units(1).allowed());
        gate.state(&[]);
    }
    assert!(gate.at(START + 333_334).take(1).allowed());
}

// Gubernator kept refusing after the units had been given back.
#[test]
fn gubernator_refund_lifts_the_denial() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 5, window: 1h }}]");
        let gate = Gate::new(&global(&rule));
        assert_eq!(gate.passed(10, |gate| gate.take(1)), 5);
        assert_eq!(gate.refund(&[], 2), 2, "{algorithm}");
        assert_eq!(gate.passed(10, |gate| gate.take(1)), 2, "{algorithm}");
    }
}

// Envoy's service stopped counting the enforced rules once a shadow rule was over.
#[test]
fn envoy_shadow_rule_does_not_stop_counting() {
    let gate = Gate::new(&set_of(
        "{ id: watched, scope: global, mode: shadow, priority: 1, bands: [{ capacity: 1, window: 1h }] },
         { id: r, scope: global, bands: [{ capacity: 3, window: 1h }] }",
    ));
    let decisions: Vec<_> = (0..5).map(|_| gate.take(1)).collect();
    let outcomes: Vec<_> = decisions
        .iter()
        .map(|decision| decision.outcome().name())
        .collect();
    assert_eq!(
        outcomes,
        [
            "allowed",
            "shadow_denied",
            "shadow_denied",
            "denied",
            "denied"
        ]
    );
    assert_eq!(violated(&decisions[1]), ["watched/b0"]);
    assert_eq!(violated(&decisions[4]), ["r/b0"]);
}

// Envoy's service took what a denied request asked for.
#[test]
fn envoy_denied_big_request_burns_nothing() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 10, window: 1h }}]");
        let gate = Gate::new(&global(&rule));
        let _ = gate.take(4);
        for cost in [7, 10, 11, 1_000] {
            assert!(!gate.take(cost).allowed());
        }
        assert_eq!(gate.passed(20, |gate| gate.take(1)), 6, "{algorithm}");
    }
}

// Envoy's service joined the parts of a key with `_`.
#[test]
fn envoy_key_parts_are_not_ambiguous() {
    let gate = Gate::new(&set_of(
        "{ id: r, key: [\"attr:a\", \"attr:b\"], bands: [{ capacity: 1, window: 1h }] }",
    ));
    for (a, b) in [
        ("x_y", "z"),
        ("x", "y_z"),
        ("x_", "y_z"),
        ("x", "_y_z"),
        ("x:y", "z"),
        ("x", "y:z"),
    ] {
        let context = RequestContext::builder()
            .attribute("a", a)
            .attribute("b", b)
            .build();
        assert!(gate.check(&context).allowed(), "{a} {b}");
        assert!(!gate.check(&context).allowed(), "{a} {b}");
    }
}

// Limitador checked first and counted afterwards: of N at once, N passed.
#[test]
fn limitador_n_at_once_pass_one() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 1, window: 1h }}]");
        let gate = Gate::new(&per_user(&rule));
        for round in 0..200 {
            let user = format!("u{round}");
            let passed = at_once(8, || gate.user(&user).allowed());
            assert_eq!(passed, 1, "{algorithm}");
        }
    }
}

// Limitador dropped the counters that were used least recently, so a flood of
// new keys reset the limits of everybody else.
#[test]
fn limitador_flood_does_not_reset_used_limits() {
    for algorithm in NAMES {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 10, window: 1d }}]");
        let gate = Gate::with_store(&per_user(&rule), 2_000, Retention::UntilFull);
        let victims: Vec<_> = (0..20).map(|index| format!("victim-{index}")).collect();
        for victim in &victims {
            assert_eq!(gate.passed(20, |gate| gate.user(victim)), 10);
        }
        for index in 0..40_000 {
            let _ = gate.at(START + index).user(&format!("flood-{index}"));
        }
        for victim in &victims {
            assert!(
                !gate.user(victim).allowed(),
                "{algorithm}: {victim} was forgotten"
            );
        }
    }
}

// Spring Cloud Gateway's clock had whole seconds: 200 around a second's edge.
#[test]
fn spring_no_double_burst_at_a_second_edge() {
    for algorithm in ["token_bucket", "sliding_log"] {
        let rule = format!("algorithm: {algorithm}, bands: [{{ capacity: 100, window: 1s }}]");
        let gate = Gate::new(&global(&rule));
        let before = gate.at(START - 10 * MILLI).passed(100, |gate| gate.take(1));
        let after = gate.at(START + 10 * MILLI).passed(100, |gate| gate.take(1));
        assert_eq!(before, 100);
        // 20 ms refill two.
        assert_eq!(after, if algorithm == "token_bucket" { 2 } else { 0 });
    }
}

// Logs that keep a timestamp as the member of a set count one tick once.
#[test]
fn sliding_log_two_requests_in_one_tick_count_twice() {
    let gate = Gate::new(&global(
        "algorithm: sliding_log, bands: [{ capacity: 5, window: 1s }]",
    ));
    assert_eq!(gate.at(START).passed(9, |gate| gate.take(1)), 5);
    assert_eq!(
        gate.at(START + SECOND - 1).passed(9, |gate| gate.take(1)),
        0
    );
    assert_eq!(gate.at(START + SECOND).passed(9, |gate| gate.take(1)), 5);
}

// A window that is read and then incremented lets two requests read 99.
#[test]
fn fixed_window_two_threads_do_not_read_the_same_count() {
    let gate = Gate::new(&per_user(
        "algorithm: fixed_window, bands: [{ capacity: 100, window: 1h }]",
    ));
    for round in 0..50 {
        let user = format!("u{round}");
        for _ in 0..99 {
            assert!(gate.user(&user).allowed());
        }
        assert_eq!(at_once(2, || gate.user(&user).allowed()), 1);
    }
}

// Several kept identities as they came.
#[test]
fn identities_are_not_stored() {
    for algorithm in NAMES {
        let rules = format!(
            "{{ id: r, key: [user, api_key, ip, \"attr:tenant\"], algorithm: {algorithm}, \
             bands: [{{ capacity: 5, window: 1h }}] }}"
        );
        let gate = Gate::new(&set_of(&rules));
        let context = RequestContext::builder()
            .user("alice@example.com")
            .api_key("sk-live-0123456789")
            .ip([203, 0, 113, 77])
            .attribute("tenant", "acme-corporation")
            .build();
        assert!(gate.check(&context).allowed());
        let shown = format!("{:?}", gate.limiter.store());
        let in_bytes = |text: &str| {
            let bytes: Vec<_> = text.bytes().map(|byte| byte.to_string()).collect();
            bytes.join(", ")
        };
        for secret in [
            "alice@example.com",
            "sk-live-0123456789",
            "203.0.113.77",
            "acme-corporation",
        ] {
            assert!(!shown.contains(secret), "{secret}");
            assert!(!shown.contains(&in_bytes(secret)), "{secret}");
        }
        assert!(!shown.contains("203, 0, 113, 77"));
    }
}
