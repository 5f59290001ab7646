//! Rules that change while the limiter runs.

use fluxgate_core::ready;

use crate::support::{Gate, HOUR, NAMES, SECOND, START, global, parse, per_user, retry, set_of};

fn rule(algorithm: &str, capacity: u64, window: &str) -> String {
    global(&format!(
        "algorithm: {algorithm}, bands: [{{ capacity: {capacity}, window: {window} }}]"
    ))
}

#[test]
fn a_change_of_capacity_applies_at_once_and_keeps_what_was_taken() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_window"] {
        let gate = Gate::new(&rule(algorithm, 10, "1h"));
        gate.take(6);
        gate.replace(&rule(algorithm, 8, "1h"));
        assert_eq!(gate.left(&[]), [2], "{algorithm}");
        gate.replace(&rule(algorithm, 5, "1h"));
        let over = gate.take(0);
        assert!(
            !over.allowed(),
            "{algorithm}: over its limit even for nothing"
        );
        assert_eq!(over.remaining(), Some(0));
        gate.replace(&rule(algorithm, 20, "1h"));
        assert_eq!(gate.left(&[]), [14], "{algorithm}");
    }
}

#[test]
fn a_bucket_keeps_the_instant_at_which_it_is_full() {
    for algorithm in ["token_bucket", "leaky_bucket"] {
        let bucket = |capacity, refill, period| {
            global(&format!(
                "algorithm: {algorithm}, bands: [{{ capacity: {capacity}, window: 10s, refill: {refill}, period: {period} }}]"
            ))
        };
        let gate = Gate::new(&bucket(10, 10, "10s"));
        gate.take(6);
        // Full in 6 s, whatever the numbers are called.
        for (rules, left) in [
            (bucket(20, 10, "10s"), 14),
            (bucket(20, 20, "10s"), 8),
            (bucket(20, 10, "20s"), 17),
            // 6 s are more than two units take to fill: empty, and no debt.
            (bucket(2, 10, "10s"), 0),
        ] {
            gate.replace(&rules);
            assert_eq!(gate.left(&[]), [left], "{algorithm}");
        }
        assert_eq!(
            gate.state(&[])[0].reset_after.get(),
            2 * SECOND,
            "{algorithm}"
        );
    }
}

#[test]
fn a_fraction_that_no_longer_fits_goes_up_to_the_next_microsecond() {
    let bucket = |refill| {
        global(&format!(
            "bands: [{{ capacity: 10, window: 1s, refill: {refill} }}]"
        ))
    };
    let reset = |gate: &Gate| gate.state(&[])[0].reset_after.get();
    let gate = Gate::new(&bucket(3));
    gate.take(1);
    // Full at 333,333 µs and a third, which is two sixths.
    gate.replace(&bucket(6));
    gate.take(1);
    assert_eq!(reset(&gate), 500_000);
    gate.replace(&bucket(3));
    gate.refund(&[], 1);
    // Full at 166,666 and two thirds: no sevenths, so 166,667; and one unit
    // more takes 142,857 and a seventh.
    gate.replace(&bucket(7));
    gate.take(1);
    assert_eq!(reset(&gate), 309_525);
}

#[test]
fn a_fraction_is_rounded_only_when_it_is_written() {
    let bucket = |refill| {
        global(&format!(
            "bands: [{{ capacity: 10, window: 1s, refill: {refill} }}]"
        ))
    };
    let gate = Gate::new(&bucket(3));
    gate.take(1);
    gate.replace(&bucket(7));
    gate.look(1);
    gate.replace(&bucket(3));
    // Two units are two thirds of a second; had the look rounded, one µs more.
    gate.take(1);
    assert_eq!(gate.state(&[])[0].reset_after.get(), 666_667);
}

#[test]
fn another_window_starts_afresh() {
    for algorithm in NAMES {
        let gate = Gate::new(&rule(algorithm, 5, "1h"));
        gate.take(5);
        gate.replace(&rule(algorithm, 5, "2h"));
        assert_eq!(gate.left(&[]), [5], "{algorithm}");
        assert!(gate.take(5).allowed());
        assert!(!gate.take(1).allowed());
    }
}

#[test]
fn another_algorithm_starts_afresh() {
    for before in NAMES {
        for after in NAMES.into_iter().filter(|after| *after != before) {
            let gate = Gate::new(&rule(before, 5, "1h"));
            gate.take(5);
            gate.replace(&rule(after, 5, "1h"));
            assert_eq!(gate.left(&[]), [5], "{before} to {after}");
            assert!(gate.take(5).allowed(), "{before} to {after}");
            assert!(!gate.take(1).allowed(), "{before} to {after}");
            // And so does the way back.
            gate.replace(&rule(before, 5, "1h"));
            assert_eq!(gate.left(&[]), [5], "{before} to {after} and back");
        }
    }
}

#[test]
fn gcra_is_another_name_and_no_change() {
    let gate = Gate::new(&rule("token_bucket", 5, "1h"));
    gate.take(3);
    gate.replace(&rule("gcra", 5, "1h"));
    assert_eq!(gate.left(&[]), [2]);
}

#[test]
fn bands_are_known_by_their_ids() {
    let bands = |bands: &str| global(&format!("bands: [{bands}]"));
    let gate = Gate::new(&bands(
        "{ id: a, capacity: 5, window: 1h }, { id: b, capacity: 9, window: 1h }",
    ));
    gate.take(4);
    gate.replace(&bands("{ id: b, capacity: 9, window: 1h }, { id: c, capacity: 7, window: 1h }, { id: a, capacity: 5, window: 1h }"));
    assert_eq!(gate.left(&[]), [5, 7, 1]);
}

#[test]
fn everything_else_may_change_without_a_reset() {
    let gate = Gate::new(&per_user("bands: [{ capacity: 5, window: 1h }]"));
    gate.user("u");
    gate.replace(&per_user(
        "name: other, priority: 3, mode: shadow, cost: 2, attributes: { a: b }, bands: [{ capacity: 5, window: 1h }]",
    ));
    assert_eq!(gate.left(&["u"]), [4]);
}

#[test]
fn a_rule_that_resets_on_change_starts_afresh_at_any_change() {
    let resetting = |rest: &str| per_user(&format!("reset_on_change: true, {rest}"));
    let bands = "bands: [{ capacity: 5, window: 1h }]";
    for changed in [
        "priority: 3, ",
        "name: other, ",
        "cost: 2, ",
        "attributes: { a: b }, ",
    ] {
        let gate = Gate::new(&resetting(bands));
        gate.user("u");
        // The same rule, written in another way, is no change.
        gate.replace(&per_user(
            "bands: [ {window: 1h,   capacity: 5} ], reset_on_change: true",
        ));
        assert_eq!(gate.left(&["u"]), [4], "{changed}");
        gate.replace(&resetting(&format!("{changed}{bands}")));
        assert_eq!(gate.left(&["u"]), [5], "{changed}");
        assert_eq!(gate.keys(), 0, "and leaves nothing behind");
        gate.user("u");
        gate.replace(&resetting(bands));
        assert_eq!(gate.left(&["u"]), [5], "{changed} and back");
    }
}

#[test]
fn a_change_of_one_rule_resets_no_other() {
    let rules = |cost: u64| {
        set_of(&format!(
            "{{ id: r, scope: global, reset_on_change: true, bands: [{{ capacity: 5, window: 1h }}] }},
             {{ id: other, scope: global, reset_on_change: true, cost: {cost}, bands: [{{ capacity: 9, window: 1h }}] }}"
        ))
    };
    let gate = Gate::new(&rules(1));
    gate.take(1);
    gate.replace(&rules(2));
    assert_eq!(gate.left(&[]), [4]);
    assert_eq!(
        ready(gate.limiter.state("s", "other", &[])).unwrap()[0].remaining,
        9
    );
}

#[test]
fn a_rule_that_goes_and_comes_back_remembers_unless_it_resets() {
    for (resets, left) in [(false, 4), (true, 5)] {
        let rule = per_user(&format!(
            "reset_on_change: {resets}, bands: [{{ capacity: 5, window: 1h }}]"
        ));
        let gate = Gate::new(&rule);
        gate.user("u");
        gate.replace(&set_of(
            "{ id: q, scope: global, bands: [{ capacity: 5, window: 1h }] }",
        ));
        assert!(ready(gate.limiter.state("s", "r", &["u"])).is_err());
        gate.replace(&rule);
        assert_eq!(gate.left(&["u"]), [left]);
    }
}

#[test]
fn a_rule_that_is_back_before_it_was_forgotten_is_not() {
    let rule = per_user("reset_on_change: true, bands: [{ capacity: 5, window: 1h }]");
    let gate = Gate::new(&rule);
    gate.user("u");
    let replaced = gate.limiter.put_in_force(parse("rule_sets: {}"));
    gate.limiter.put_in_force(parse(&rule));
    ready(gate.limiter.forget_replaced(&replaced)).unwrap();
    assert_eq!(gate.left(&["u"]), [4]);
}

#[test]
fn a_bucket_lowered_while_it_owes_is_bounded_by_the_new_numbers() {
    let bucket = |max_wait: &str| {
        global(&format!(
            "on_exceed: wait, max_wait: {max_wait}, bands: [{{ capacity: 1, window: 1s }}]"
        ))
    };
    let gate = Gate::new(&bucket("1h"));
    for _ in 0..1000 {
        assert!(gate.take(1).allowed());
    }
    assert_eq!(gate.take(1).delay().get(), 1000 * SECOND);
    gate.replace(&bucket("5s"));
    assert_eq!(retry(&gate.take(1)), Some(6 * SECOND));
    assert!(gate.at(START + HOUR).take(1).allowed());
}
