//! Rules that change while the limiter runs.

use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, Limiter, MemoryStore, OnMissingRuleSet, Quota, RequestContext, Rule, RuleSet,
};
use num_rational::BigRational;
use proptest::prelude::*;

use crate::support::{
    Gate, MILLI, NAMES, SECOND, START, cases, global, micros, parse, per_user, retry, set_of,
};

fn rule(algorithm: &str, capacity: u64, window: &str) -> String {
    global(&format!(
        "algorithm: {algorithm}, bands: [{{ capacity: {capacity}, window: {window} }}]"
    ))
}

#[test]
fn a_change_of_capacity_applies_at_once_and_keeps_charged_units() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_window"] {
        let gate = Gate::new(&rule(algorithm, 10, "1h"));
        let _ = gate.take(6);
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
        let _ = gate.take(6);
        // Full in 6 s, whatever the numbers.
        for (rules, left) in [
            (bucket(20, 10, "10s"), 14),
            (bucket(20, 20, "10s"), 8),
            (bucket(20, 10, "20s"), 17),
            // 6 s are more than two units take to refill: it is empty, and owes.
            (bucket(2, 10, "10s"), 0),
        ] {
            gate.replace(&rules);
            assert_eq!(gate.left(&[]), [left], "{algorithm}");
        }
        assert_eq!(
            micros(gate.state(&[])[0].reset_after),
            6 * SECOND,
            "{algorithm}"
        );
        let denied = gate.take(1);
        assert_eq!(retry(&denied), Some(5 * SECOND), "{algorithm}");
        // Nothing was written.
        gate.replace(&bucket(10, 10, "10s"));
        assert_eq!(gate.left(&[]), [4], "{algorithm}");
    }
}

#[test]
fn a_fraction_that_no_longer_fits_rounds_up_to_the_next_microsecond() {
    let bucket = |refill| {
        global(&format!(
            "bands: [{{ capacity: 10, window: 1s, refill: {refill} }}]"
        ))
    };
    let reset = |gate: &Gate| micros(gate.state(&[])[0].reset_after);
    let gate = Gate::new(&bucket(3));
    let _ = gate.take(1);
    // Full at 333,333 µs and a third, which is two sixths.
    gate.replace(&bucket(6));
    let _ = gate.take(1);
    assert_eq!(reset(&gate), 500_000);
    gate.replace(&bucket(3));
    gate.refund(&[], 1);
    // Full at 166,666 and two thirds: no sevenths, so 166,667; and one unit
    // more takes 142,857 and a seventh.
    gate.replace(&bucket(7));
    let _ = gate.take(1);
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
    let _ = gate.take(1);
    gate.replace(&bucket(7));
    let _ = gate.peek_units(1);
    gate.replace(&bucket(3));
    // Two units are two thirds of a second; if the peek had rounded, one µs more.
    let _ = gate.take(1);
    assert_eq!(micros(gate.state(&[])[0].reset_after), 666_667);
}

#[test]
fn another_window_is_another_counter_of_all_but_buckets() {
    for algorithm in NAMES {
        let is_bucket = algorithm.ends_with("bucket") || algorithm == "gcra";
        let gate = Gate::new(&rule(algorithm, 5, "1h"));
        let _ = gate.take(5);
        gate.replace(&rule(algorithm, 5, "2h"));
        // One hour is left of the two in which the bucket now fills.
        let left = if is_bucket { 2 } else { 5 };
        assert_eq!(gate.left(&[]), [left], "{algorithm}");
        assert!(gate.take(left).allowed());
        assert!(!gate.take(1).allowed());
        // Instances that still have the old rule find their counts.
        gate.replace(&rule(algorithm, 5, "1h"));
        assert!(!gate.take(1).allowed(), "{algorithm}");
    }
}

#[test]
fn another_algorithm_is_another_counter_but_buckets_share_theirs() {
    for before in NAMES {
        for after in NAMES.into_iter().filter(|after| *after != before) {
            let gate = Gate::new(&rule(before, 5, "1h"));
            let _ = gate.take(5);
            gate.replace(&rule(after, 5, "1h"));
            let shared = before.ends_with("bucket") && after.ends_with("bucket");
            let left = if shared { 0 } else { 5 };
            assert_eq!(gate.left(&[]), [left], "{before} to {after}");
            assert!(gate.take(left).allowed(), "{before} to {after}");
            assert!(!gate.take(1).allowed(), "{before} to {after}");
            // And a change back finds the old counts.
            gate.replace(&rule(before, 5, "1h"));
            assert_eq!(gate.left(&[]), [0], "{before} to {after} and back");
        }
    }
}

#[test]
fn gcra_is_another_name_and_no_change() {
    let gate = Gate::new(&rule("token_bucket", 5, "1h"));
    let _ = gate.take(3);
    gate.replace(&rule("gcra", 5, "1h"));
    assert_eq!(gate.left(&[]), [2]);
}

#[test]
fn bands_are_identified_by_their_ids() {
    let bands = |bands: &str| global(&format!("bands: [{bands}]"));
    let gate = Gate::new(&bands(
        "{ id: a, capacity: 5, window: 1h }, { id: b, capacity: 9, window: 1h }",
    ));
    let _ = gate.take(4);
    gate.replace(&bands("{ id: b, capacity: 9, window: 1h }, { id: c, capacity: 7, window: 1h }, { id: a, capacity: 5, window: 1h }"));
    assert_eq!(gate.left(&[]), [5, 7, 1]);
}

#[test]
fn everything_else_may_change_without_a_reset() {
    let gate = Gate::new(&per_user("bands: [{ capacity: 5, window: 1h }]"));
    let _ = gate.user("u");
    gate.replace(&per_user(
        "name: other, priority: 3, mode: shadow, cost: 2, attributes: { a: b }, bands: [{ capacity: 5, window: 1h }]",
    ));
    assert_eq!(gate.left(&["u"]), [4]);
}

#[test]
fn a_rule_that_resets_on_change_resets_at_any_change() {
    let resetting = |rest: &str| per_user(&format!("reset_on_change: true, {rest}"));
    let bands = "bands: [{ capacity: 5, window: 1h }]";
    for changed in [
        "priority: 3, ",
        "name: other, ",
        "cost: 2, ",
        "attributes: { a: b }, ",
    ] {
        let gate = Gate::new(&resetting(bands));
        let _ = gate.user("u");
        // The same rule in another notation is no change.
        gate.replace(&per_user(
            "bands: [ {window: 1h,   capacity: 5} ], reset_on_change: true",
        ));
        assert_eq!(gate.left(&["u"]), [4], "{changed}");
        gate.replace(&resetting(&format!("{changed}{bands}")));
        assert_eq!(gate.left(&["u"]), [5], "{changed}");
        assert_eq!(gate.keys(), 0, "and leaves nothing behind");
        let _ = gate.user("u");
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
    let _ = gate.take(1);
    gate.replace(&rules(2));
    assert_eq!(gate.left(&[]), [4]);
    assert_eq!(
        ready(gate.limiter.state("s", "other", &[])).unwrap()[0].remaining,
        9
    );
}

#[test]
fn a_rule_that_is_removed_and_added_again_keeps_its_state_unless_it_resets() {
    for (resets, left) in [(false, 4), (true, 5)] {
        let rule = per_user(&format!(
            "reset_on_change: {resets}, bands: [{{ capacity: 5, window: 1h }}]"
        ));
        let gate = Gate::new(&rule);
        let _ = gate.user("u");
        gate.replace(&set_of(
            "{ id: q, scope: global, bands: [{ capacity: 5, window: 1h }] }",
        ));
        assert!(ready(gate.limiter.state("s", "r", &["u"])).is_err());
        gate.replace(&rule);
        assert_eq!(gate.left(&["u"]), [left]);
    }
}

#[test]
fn a_rule_that_is_active_again_is_not_reset() {
    let rule = per_user("reset_on_change: true, bands: [{ capacity: 5, window: 1h }]");
    let gate = Gate::new(&rule);
    let _ = gate.user("u");
    let replaced = gate.limiter.swap_rules(parse("rule_sets: {}"));
    gate.limiter.swap_rules(parse(&rule));
    ready(gate.limiter.reset_replaced(&replaced)).unwrap();
    assert_eq!(gate.left(&["u"]), [4]);
}

#[test]
fn a_bucket_lowered_while_it_owes_still_owes() {
    let bucket = |max_wait: &str| {
        global(&format!(
            "on_exceed: wait, max_wait: {max_wait}, bands: [{{ capacity: 1, window: 1s }}]"
        ))
    };
    let gate = Gate::new(&bucket("1h"));
    for _ in 0..1000 {
        assert!(gate.take(1).allowed());
    }
    gate.replace(&bucket("5s"));
    assert_eq!(retry(&gate.take(1)), Some(1000 * SECOND));
    gate.replace(&bucket("1h"));
    assert_eq!(gate.take(1).delay_micros().get(), 1000 * SECOND);
}

#[test]
fn a_rule_with_a_smaller_limit_erases_nothing() {
    let (large, small) = (
        rule("token_bucket", 100, "10s"),
        rule("token_bucket", 1, "100ms"),
    );
    let gate = Gate::new(&large);
    assert!(gate.take(100).allowed());
    for _ in 0..3 {
        gate.replace(&small);
        assert_eq!(retry(&gate.take(1)), Some(10 * SECOND));
        gate.replace(&large);
        assert_eq!(gate.left(&[]), [0]);
    }
    // A clock that goes far back is corrected to the horizon of the large one, the first
    // power of two from 20 s on, which the small one does not have.
    gate.at(START - 3_600 * SECOND).replace(&small);
    assert_eq!(retry(&gate.take(1)), Some(1 << 25));
    gate.replace(&large);
    assert_eq!(micros(gate.state(&[])[0].reset_after), 1 << 25);
}

#[test]
fn a_charge_for_which_there_is_no_room_erases_nothing() {
    let rule = |rate: &str| global(&format!("charge: always, bands: [ {rate} ]"));
    let (large, small) = (rule("1000/1000s"), rule("1/1s"));
    let gate = Gate::new(&large);
    assert!(gate.take(990).allowed());
    for _ in 0..3 {
        gate.replace(&small);
        let denied = gate.take(1);
        assert_eq!(retry(&denied), Some(990 * SECOND));
        assert_eq!(denied.reset_micros().get(), 990 * SECOND);
        gate.replace(&large);
        assert_eq!(gate.left(&[]), [10]);
    }
}

/// Rules with different numbers on one bucket, as during a rollout.
#[derive(Clone, Debug)]
struct Reader {
    capacity: u64,
    refill: u64,
    period_ms: u64,
    leaky: bool,
}

impl Reader {
    fn rule(&self) -> String {
        let Self {
            capacity,
            refill,
            period_ms,
            leaky,
        } = self;
        let algorithm = if *leaky {
            "leaky_bucket"
        } else {
            "token_bucket"
        };
        global(&format!(
            "algorithm: {algorithm}, bands: [{{ capacity: {capacity}, window: 1s, refill: {refill}, period: {period_ms}ms }}]"
        ))
    }

    /// P/R, in µs.
    fn unit(&self) -> BigRational {
        BigRational::new((self.period_ms * MILLI).into(), self.refill.into())
    }

    /// C·P/R.
    fn fill(&self) -> BigRational {
        self.unit() * BigRational::from_integer(self.capacity.into())
    }
}

fn reader() -> impl Strategy<Value = Reader> {
    (1..=40_u64, 1..=40_u64, 1..=3_000_u64, any::<bool>()).prop_map(
        |(capacity, refill, period_ms, leaky)| Reader {
            capacity,
            refill,
            period_ms,
            leaky,
        },
    )
}

proptest! {
    #![proptest_config(cases(500))]

    /// Over every interval of length t, with x_i the time of the units that reader i
    /// admits and F_i its time to fill: x_i ≤ F_i + t for each, and Σ x_i ≤ max F + t.
    /// Readers that fill in the same time have Σ admitted_i / bound_i ≤ 1 by that.
    #[test]
    fn several_rules_of_one_bucket_share_it(
        readers in prop::collection::vec(reader(), 1..4),
        same_fill in any::<bool>(),
        traffic in prop::collection::vec((0..4_usize, 0..900_u64, 1..=20_u64), 1..80),
    ) {
        let mut readers = readers;
        if same_fill {
            // C·P/R of the first: the capacity in R, and its period.
            let (capacity, period_ms) = (readers[0].capacity, readers[0].period_ms);
            for reader in &mut readers {
                reader.period_ms = period_ms;
                reader.refill = readers_refill(reader.capacity, capacity);
                reader.capacity = capacity * reader.refill;
            }
        }
        let gate = Gate::new(&readers[0].rule());
        let mut now = START;
        let mut admitted: Vec<(u64, usize, u64)> = Vec::new();
        for (number, pause, cost) in traffic {
            let number = number % readers.len();
            now += pause * 1_111;
            gate.at(now).replace(&readers[number].rule());
            if gate.take(cost).allowed() {
                admitted.push((now, number, cost));
            }
        }
        let whole = |number: u64| BigRational::from_integer(number.into());
        let widest = readers.iter().map(Reader::fill).max().unwrap();
        for first in 0..admitted.len() {
            let mut used = vec![whole(0); readers.len()];
            for (at, number, cost) in &admitted[first..] {
                used[*number] += whole(*cost) * readers[*number].unit();
                let span = whole(at - admitted[first].0);
                for (used, reader) in used.iter().zip(&readers) {
                    prop_assert!(*used <= reader.fill() + &span);
                }
                let all: BigRational = used.iter().sum();
                prop_assert!(all <= &widest + &span);
                if same_fill {
                    // used/unit units of at most (fill + span)/unit.
                    let shares = used.iter().zip(&readers);
                    let shares = shares.map(|(used, reader)| used / (reader.fill() + &span));
                    prop_assert!(shares.sum::<BigRational>() <= whole(1));
                }
            }
        }
    }
}

/// Returns a refill that gives another rule another rate.
fn readers_refill(number: u64, capacity: u64) -> u64 {
    1 + (number * 7 + capacity) % 9
}

#[test]
fn a_handle_follows_its_rule_set_and_outlives_it() {
    let set = |name: &str, capacity| {
        let quota = Quota::per_hour(capacity).algorithm(Algorithm::SlidingLog);
        let rule = Rule::new("all").global().band(quota);
        RuleSet::builder(name).rule(rule).build().unwrap()
    };
    let limiter = Limiter::builder(set("api", 1), MemoryStore::default())
        .on_missing_rule_set(OnMissingRuleSet::Deny)
        .build();
    let api = limiter.rule_set("api").unwrap();
    let context = RequestContext::builder().build();
    assert!(api.check_sync(&context).allowed());
    assert!(!api.check_sync(&context).allowed());

    ready(limiter.replace_rules(set("api", 3))).unwrap();
    assert!(api.check_sync(&context).allowed());

    ready(limiter.replace_rules(set("other", 3))).unwrap();
    assert_eq!(api.name(), "api");
    assert!(!api.check_sync(&context).allowed());
    let unknown = limiter.rule_set("api").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "there is no rule set `api`; the only one is `other`"
    );
}
