//! How the verdicts of bands and rules become one decision, and how shadow rules take
//! part.

use fluxgate_core::task::ready;

use crate::support::{Gate, HOUR, MINUTE, SECOND, START, fields, global, retry, set_of, violated};

#[test]
fn a_denial_reports_the_longest_wait() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: global, algorithm: fixed_window, bands: [
            { id: second, capacity: 3, window: 1s }, { id: hour, capacity: 3, window: 1h },
            { id: minute, capacity: 3, window: 1m }, { id: also-hour, capacity: 3, window: 1h },
            { id: roomy, capacity: 100, window: 1d }] }",
    ));
    let _ = gate.take(3);
    let decision = gate.take(1);
    let shown = fields(&decision);
    assert_eq!((shown.outcome, shown.allowed), ("denied", false));
    assert_eq!(shown.band.as_deref(), Some("hour"), "of equals the first");
    assert_eq!((shown.limit, shown.remaining), (Some(3), Some(0)));
    assert_eq!(
        (shown.retry, shown.reset, shown.delay),
        (Some(HOUR), HOUR, 0)
    );
    assert_eq!(
        shown.violated,
        ["r/second", "r/hour", "r/minute", "r/also-hour"]
    );
}

#[test]
fn never_is_longer_than_any_time() {
    let gate = Gate::new(&set_of(
        "{ id: long, scope: global, algorithm: fixed_window, bands: [{ capacity: 5, window: 366d }] },
         { id: small, scope: global, bands: [{ capacity: 2, window: 1s }] }",
    ));
    let _ = gate.take(2);
    let _ = gate.at(START + SECOND).take(2);
    let decision = gate.take(3);
    assert_eq!(decision.outcome().name(), "never");
    assert_eq!(decision.rule().unwrap().id(), "small");
    assert_eq!(violated(&decision), ["long/b0", "small/b0"]);
    // Without a never, the longest wait is reported.
    let decision = gate.take(2);
    assert_eq!(decision.outcome().name(), "denied");
    assert_eq!(decision.rule().unwrap().id(), "long");
}

#[test]
fn an_allowed_request_reports_the_band_with_the_least_left() {
    let gate = Gate::new(&set_of(
        "{ id: late, scope: global, priority: 200, bands: [{ capacity: 5, window: 1h }] },
         { id: first, scope: global, priority: -7, bands: [{ capacity: 9, window: 1h }, { capacity: 5, window: 1m }] },
         { id: usual, scope: global, bands: [{ capacity: 5, window: 1h }] }",
    ));
    let decision = gate.take(2);
    let shown = fields(&decision);
    assert_eq!(
        (shown.rule.as_deref(), shown.band.as_deref()),
        (Some("first"), Some("b1"))
    );
    assert_eq!(
        (shown.limit, shown.remaining, shown.retry),
        (Some(5), Some(3), Some(0))
    );
    assert_eq!(shown.reset, 2 * MINUTE / 5);
    let rules: Vec<_> = decision
        .rules()
        .map(|(rule, refused)| (rule.id(), refused))
        .collect();
    assert_eq!(rules, [("first", false), ("usual", false), ("late", false)]);
    assert_eq!(decision.bands().count(), 4);
}

#[test]
fn the_longest_delay_of_all_bands_is_reported() {
    let gate = Gate::new(&global(
        "algorithm: leaky_bucket, shape: true, bands: [{ capacity: 10, window: 10s }, { capacity: 20, window: 60s }]",
    ));
    assert_eq!(gate.take(1).delay_micros().get(), 0);
    assert_eq!(gate.take(1).delay_micros().get(), 3 * SECOND);
    assert_eq!(
        gate.at(START + 2 * SECOND).take(1).delay_micros().get(),
        4 * SECOND
    );
}

#[test]
fn a_band_that_can_reserve_is_not_violated() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: global, on_exceed: wait, max_wait: 2s, bands: [
            { id: fast, capacity: 1, window: 1s }, { id: slow, capacity: 3, window: 1h }] }",
    ));
    let delays: Vec<_> = (0..3).map(|_| gate.take(1).delay_micros().get()).collect();
    assert_eq!(delays, [0, SECOND, 2 * SECOND]);
    let decision = gate.take(1);
    assert!(!decision.allowed());
    assert_eq!(violated(&decision), ["r/fast", "r/slow"]);
    // After 2 s the first band could reserve, so only the other denies; and nothing
    // is reserved if the request is denied.
    for _ in 0..3 {
        let decision = gate.at(START + 2 * SECOND).take(1);
        assert_eq!(violated(&decision), ["r/slow"]);
        assert_eq!(decision.delay_micros().get(), 0);
        assert_eq!(retry(&decision), Some(HOUR / 3 - 2 * SECOND));
    }
}

#[test]
fn windows_and_logs_do_not_owe() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_window"] {
        let gate = Gate::new(&global(&format!(
            "algorithm: {algorithm}, on_exceed: wait, max_wait: 1d, bands: [{{ capacity: 1, window: 1s }}]"
        )));
        assert!(gate.take(1).allowed());
        let decision = gate.take(1);
        assert!(!decision.allowed() && retry(&decision).is_some_and(|wait| wait > 0));
        assert!(gate.limiter.rules().get("s").unwrap().rules()[0].waits());
    }
}

#[test]
fn a_cancelled_reservation_gives_its_units_back() {
    let gate = Gate::new(&global(
        "on_exceed: wait, max_wait: 5s, bands: [{ capacity: 1, window: 1s }]",
    ));
    let _ = gate.take(1);
    assert_eq!(gate.take(1).delay_micros().get(), SECOND);
    assert_eq!(gate.take(1).delay_micros().get(), 2 * SECOND);
    gate.refund(&[], 1);
    assert_eq!(
        gate.take(1).delay_micros().get(),
        2 * SECOND,
        "in the place that became free"
    );
}

/// The enforced rule `r` and the shadow rule `dark`.
fn with_shadow(enforced: u64, shadow: u64) -> Gate {
    Gate::new(&set_of(&format!(
        "{{ id: dark, scope: global, mode: shadow, priority: 1, bands: [{{ capacity: {shadow}, window: 1h }}] }},
         {{ id: r, scope: global, bands: [{{ capacity: {enforced}, window: 1h }}] }}"
    )))
}

fn left(gate: &Gate, rule: &str) -> u64 {
    ready(gate.limiter.state("s", rule, &[])).unwrap()[0].remaining
}

#[test]
fn a_shadow_rule_is_charged_when_the_request_passes() {
    let gate = with_shadow(4, 2);
    let shown: Vec<_> = (0..5).map(|_| fields(&gate.take(1))).collect();
    let outcomes: Vec<_> = shown.iter().map(|it| it.outcome).collect();
    assert_eq!(
        outcomes,
        [
            "allowed",
            "allowed",
            "shadow_denied",
            "shadow_denied",
            "denied"
        ]
    );
    // It is never reported, although it has less left.
    assert!(shown.iter().all(|it| it.rule.as_deref() == Some("r")));
    assert_eq!(shown[1].violated, [""; 0]);
    assert_eq!(shown[2].violated, ["dark/b0"]);
    // If the enforced rules deny, it is not decided.
    assert_eq!(shown[4].violated, ["r/b0"]);
    assert_eq!((left(&gate, "dark"), left(&gate, "r")), (0, 0));
}

#[test]
fn a_shadow_rule_is_not_charged_when_the_request_is_denied() {
    let gate = with_shadow(1, 10);
    let _ = gate.take(1);
    let denied = gate.take(1);
    assert!(!denied.allowed());
    assert_eq!(denied.rules().count(), 1, "nor reported");
    assert_eq!(left(&gate, "dark"), 9);
}

#[test]
fn a_denying_shadow_rule_is_not_charged_and_blocks_nothing() {
    let gate = with_shadow(100, 5);
    assert_eq!(gate.take(6).outcome().name(), "shadow_denied");
    assert_eq!((left(&gate, "dark"), left(&gate, "r")), (5, 94));
    assert_eq!(gate.take(5).outcome().name(), "allowed");
    assert_eq!((left(&gate, "dark"), left(&gate, "r")), (0, 89));
}

#[test]
fn a_shadow_rule_reserves_but_adds_no_delay() {
    let gate = Gate::new(&set_of(
        "{ id: dark, scope: global, mode: shadow, on_exceed: wait, max_wait: 2s, bands: [{ capacity: 1, window: 1s }] },
         { id: r, scope: global, bands: [{ capacity: 100, window: 1h }] }",
    ));
    let shown: Vec<_> = (0..4).map(|_| fields(&gate.take(1))).collect();
    let outcomes: Vec<_> = shown.iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, ["allowed", "allowed", "allowed", "shadow_denied"]);
    assert!(shown.iter().all(|it| it.delay == 0));
}

#[test]
fn with_shadow_rules_only_nothing_is_reported() {
    let gate = Gate::new(&global(
        "mode: shadow, bands: [{ capacity: 1, window: 1h }, { id: more, capacity: 2, window: 1h }]",
    ));
    for (outcome, refusing) in [("allowed", &[][..]), ("shadow_denied", &["r/b0"])] {
        let shown = fields(&gate.take(1));
        assert!(shown.allowed);
        assert_eq!(shown.outcome, outcome);
        assert_eq!(
            (shown.rule, shown.band, shown.limit, shown.remaining),
            (None, None, None, None)
        );
        assert_eq!((shown.retry, shown.reset, shown.delay), (Some(0), 0, 0));
        assert_eq!(shown.violated, refusing);
    }
    // Its own bands are charged together or not at all, too.
    assert_eq!(gate.left(&[]), [0, 1]);
}

#[test]
fn shadow_rules_are_decided_each_by_itself() {
    let gate = Gate::new(&set_of(
        "{ id: tight, scope: global, mode: shadow, bands: [{ capacity: 1, window: 1h }] },
         { id: wide, scope: global, mode: shadow, bands: [{ capacity: 9, window: 1h }] }",
    ));
    let _ = gate.take(1);
    assert_eq!(violated(&gate.take(1)), ["tight/b0"]);
    assert_eq!((left(&gate, "tight"), left(&gate, "wide")), (0, 7));
}

#[test]
fn a_peek_decides_as_a_check_would_and_takes_nothing() {
    let gate = with_shadow(3, 1);
    let _ = gate.take(1);
    for _ in 0..5 {
        let peeked = gate.peek_units(2);
        assert_eq!(peeked.outcome().name(), "shadow_denied");
        assert_eq!(peeked.remaining(), Some(2));
    }
    assert!(!gate.peek_units(3).allowed());
    assert!(gate.take(2).allowed());
}
