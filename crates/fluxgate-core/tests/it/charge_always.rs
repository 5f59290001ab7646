//! Rules whose units are charged even if the request is denied.

use std::time::Duration;

use fluxgate_core::algorithm::Mode;
use fluxgate_core::key::RuleNumber;
use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Checks, Group, Subject};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Band, Limit as RealLimit, ManualClock, MemoryStore, Outcome, RequestContext, RuleSets,
    Timestamp,
};
use num_rational::BigRational;
use num_traits::Zero;
use proptest::prelude::*;

use crate::model::{Answer, Counter, Limit};
use crate::support::{ALGORITHMS, Gate, NAMES, SECOND, START, cases, retry, set_of, violated};

const LATE: &str = "{ id: late, scope: global, charge: always, bands: [ 10/10s ] }";

#[test]
fn a_denied_request_is_charged_down_to_minus_the_capacity() {
    let gate = Gate::new(&set_of(LATE));
    assert!(gate.take(6).allowed());
    let denied = gate.take(6);
    assert_eq!((denied.allowed(), denied.remaining()), (false, Some(0)));
    // It owes 2, and the same request needs 6: 8 s.
    assert_eq!(retry(&denied), Some(8 * SECOND));
    assert_eq!(denied.reset_micros().get(), 12 * SECOND);
    let never = gate.take(25);
    assert_eq!(never.outcome(), Outcome::Never);
    assert_eq!(
        never.reset_micros().get(),
        20 * SECOND,
        "no more than twice the capacity"
    );
}

#[test]
fn a_cost_of_nothing_is_denied_as_long_as_it_owes() {
    for name in NAMES {
        let rule = format!(
            "{{ id: r, scope: global, charge: always, algorithm: {name}, bands: [ 10/10s ] }}"
        );
        let gate = Gate::new(&set_of(&rule));
        for allowed in [true, false] {
            assert_eq!(gate.take(6).allowed(), allowed, "{name}");
        }
        let reset = gate.state(&[])[0].reset_after;
        assert!(!gate.take(0).allowed(), "{name}");
        assert!(!gate.peek_units(6).allowed(), "{name}");
        assert_eq!(
            gate.state(&[])[0].reset_after,
            reset,
            "{name}: nothing was charged"
        );
        gate.at(START + 30 * SECOND);
        assert!(gate.take(0).allowed(), "{name}");
    }
}

#[test]
fn other_rules_of_the_request_stay_all_or_nothing() {
    let gate = Gate::new(&set_of(&format!(
        "{{ id: strict, scope: global, bands: [ 2/1h ] }}, {LATE}, \
         {{ id: day, scope: global, algorithm: fixed_window, bands: [ 100/1d ] }}"
    )));
    let left = |rule| ready(gate.limiter.state("s", rule, &[])).unwrap()[0].remaining;
    let denied = gate.take(3);
    assert_eq!(violated(&denied), ["strict/b0"]);
    assert_eq!((left("strict"), left("late"), left("day")), (2, 7, 100));
    let denied = gate.take(8);
    assert_eq!(violated(&denied), ["strict/b0", "late/b0"]);
    assert_eq!((left("strict"), left("late"), left("day")), (2, 0, 100));
}

#[test]
fn a_missing_key_denies_and_the_charge_stays() {
    let gate = Gate::new(&set_of(&format!(
        "{LATE}, {{ id: user, scope: per_user, on_missing_key: deny, bands: [ 5/1s ] }}, \
         {{ id: all, scope: global, bands: [ 50/1h ] }}"
    )));
    let left = |rule| ready(gate.limiter.state("s", rule, &[])).unwrap()[0].remaining;
    let denied = gate.take(4);
    assert_eq!(violated(&denied), ["user/missing_key"]);
    assert_eq!((left("late"), left("all")), (6, 50));
}

/// The rule that charges in any case is the one without a key: there is nothing to charge.
#[test]
fn a_request_that_lacks_the_key_of_such_a_rule_charges_nothing() {
    let rules = "{ id: late, scope: per_user, on_missing_key: deny, charge: always, bands: [ 10/10s ] }, \
                 { id: all, scope: global, bands: [ 5/1s ] }";
    let gate = Gate::new(&set_of(rules));
    assert_eq!(violated(&gate.take(5)), ["late/missing_key"]);
    assert_eq!(violated(&gate.take(5)), ["late/missing_key"]);
}

#[test]
fn a_shadow_rule_is_charged_in_any_case_where_the_enforced_rules_pass() {
    let gate = Gate::new(&set_of(
        "{ id: strict, scope: global, bands: [ 20/1h ] }, \
         { id: late, mode: shadow, scope: global, charge: always, bands: [ 10/10s ] }",
    ));
    let late = || {
        let state = ready(gate.limiter.state("s", "late", &[])).unwrap();
        state[0].reset_after.as_secs()
    };
    assert!(gate.take(6).allowed());
    assert_eq!(gate.take(6).outcome(), Outcome::ShadowDenied);
    assert_eq!(late(), 12);
    assert!(!gate.take(9).allowed(), "by the enforced rule");
    assert_eq!(late(), 12, "it is not decided");
}

#[test]
fn every_descriptor_of_a_call_is_charged_once() {
    let gate = Gate::new(&set_of(
        "{ id: late, scope: per_user, charge: always, bands: [ 10/10s ] }",
    ));
    let of = |user: &str| {
        RequestContext::builder()
            .user(user.to_owned())
            .cost(6)
            .build()
    };
    let left = |user: &str| {
        let state = ready(gate.limiter.state("s", "late", &[user])).unwrap();
        10 - state[0].reset_after.as_secs() as i64
    };
    let decide = |users: &[&str]| {
        let contexts: Vec<_> = users.iter().map(|user| of(user)).collect();
        let decisions = ready(gate.limiter.check_all("s", &contexts));
        decisions.iter().map(|it| it.allowed()).collect::<Vec<_>>()
    };
    assert_eq!(decide(&["a", "b"]), [true, true]);
    assert_eq!(decide(&["a", "c"]), [false, true]);
    assert_eq!((left("a"), left("b"), left("c")), (-2, 4, 4));
    // Two descriptors that meet on one counter add up.
    assert_eq!(decide(&["d", "d"]), [true, false]);
    assert_eq!(left("d"), -2);
}

#[test]
fn an_explanation_shows_the_state_after_the_charge() {
    let gate = Gate::new(&set_of(LATE));
    assert!(gate.take(6).allowed());
    let request = RequestContext::builder().cost(6).build();
    let explained = ready(gate.limiter.explain("s", &request)).unwrap();
    let band = &explained.rules[0].bands[0];
    assert_eq!((band.before.remaining, band.after.remaining), (4, 0));
    assert_eq!(band.after.reset_after, Duration::from_secs(12));
    assert_eq!(
        gate.take(6).reset_micros().get(),
        12 * SECOND,
        "nothing was charged"
    );
}

#[test]
fn it_is_refused_with_rules_that_reserve() {
    for (rest, with) in [
        ("on_exceed: wait, bands: [ 1/s ]", "on_exceed: wait"),
        (
            "algorithm: leaky_bucket, shape: true, bands: [ 1/s ]",
            "shape: true",
        ),
        ("lease: { share: 20%, for: 1s }, bands: [ 100/s ]", "lease"),
        (
            "algorithm: concurrency, bands: [ { capacity: 1 } ]",
            "algorithm: concurrency",
        ),
    ] {
        let rules = set_of(&format!(
            "{{ id: r, scope: global, charge: always, {rest} }}"
        ));
        let error = RuleSets::from_yaml(&rules).unwrap_err().to_string();
        assert!(
            error.contains(&format!(
                "`charge: always` cannot be combined with `{with}`"
            )),
            "{error}"
        );
        let at = rules.find("always").unwrap() + 1;
        assert!(error.starts_with(&format!("1:{at}:")), "{error}");
    }
    let error = RuleSets::from_yaml(&set_of(
        "{ id: r, scope: global, charge: yes, bands: [ 1/s ] }",
    ));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("when_allowed") && error.contains("always"),
        "{error}"
    );
}

#[test]
fn it_is_written_as_it_is_read() {
    let rules = RuleSets::from_yaml(&set_of(LATE)).unwrap().to_yaml();
    assert!(rules.contains("charge: always"), "{rules}");
    let again = RuleSets::from_yaml(&rules).unwrap();
    assert_eq!(again.to_yaml(), rules);
    let plain = RuleSets::from_yaml(&set_of(&LATE.replace("always", "when_allowed"))).unwrap();
    assert!(!plain.to_yaml().contains("charge"));
}

const SUBJECT: Subject<'_> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"ann",
};

/// Decides by the model: all or nothing, but for the bands that are charged in any case.
fn decide(bands: &mut [(Limit, Counter, bool)], now: u64, cost: u64) -> Vec<Answer> {
    let judge = |(limit, counter, _): &mut (Limit, Counter, bool)| {
        crate::model::decide(&mut [(limit.clone(), counter.clone())], now, cost, false).remove(0)
    };
    let mut answers: Vec<Answer> = bands.iter_mut().map(judge).collect();
    let passes = answers.iter().all(|answer| answer.passes);
    for ((limit, counter, always), answer) in bands.iter_mut().zip(&mut answers) {
        let mut own = [(limit.clone(), counter.clone())];
        if passes {
            *answer = crate::model::decide(&mut own, now, cost, true).remove(0);
        } else if *always && cost > 0 {
            let nowhere = BigRational::zero();
            own[0].1.settle_hold(limit, now, (0, 0, &nowhere), cost);
            let after = crate::model::decide(&mut own, now, cost, false).remove(0);
            (answer.remaining, answer.reset) = (after.remaining, after.reset);
            if !answer.passes {
                answer.retry = after.retry;
            }
        } else {
            // A correction is written all the same.
            crate::model::decide(&mut own, now, cost, false);
        }
        *counter = own[0].1.clone();
    }
    answers
}

fn limit() -> impl Strategy<Value = Limit> {
    let algorithm = prop::sample::select(ALGORITHMS.to_vec());
    (
        algorithm,
        1..=12_u64,
        1..=20_u64,
        prop::option::of(1..=7_u64),
    )
        .prop_map(|(algorithm, capacity, seconds, refill)| Limit {
            algorithm,
            capacity,
            window: seconds * SECOND,
            refill: refill.filter(|_| algorithm.is_bucket()).unwrap_or(capacity),
            period: seconds * SECOND,
            max_wait: None,
            shape: false,
        })
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Check(u64),
    Advance(u64),
    Back(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => prop_oneof![6 => 0..=6_u64, 1 => 0..=40_u64].prop_map(Step::Check),
        2 => prop_oneof![0..5 * SECOND, (0..=20_u64).prop_map(|s| s * SECOND)].prop_map(Step::Advance),
        1 => (0..10 * SECOND).prop_map(Step::Back),
    ]
}

#[test]
fn charges_in_any_case_agree_with_the_model() {
    let limits = prop::collection::vec((limit(), any::<bool>()), 1..=3);
    let steps = prop::collection::vec(step(), 1..40);
    proptest!(cases(1500), |(limits in limits, steps in steps)| {
        let bands: Vec<_> = limits.iter().enumerate().map(|(index, (limit, always))| {
            let window = Duration::from_micros(limit.window);
            let mut real = RealLimit::builder(limit.algorithm, limit.capacity, window);
            if limit.algorithm.is_bucket() {
                real = real.refill(limit.refill).period(Duration::from_micros(limit.period));
            }
            let band = Band::new(format!("b{index}"), real.build().unwrap());
            if *always { band.charging_always() } else { band }
        }).collect();
        let store = MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever);
        let mut model: Vec<_> = limits.iter()
            .map(|(limit, always)| (limit.clone(), Counter::default(), *always))
            .collect();
        let mut now = START;
        for step in &steps {
            match *step {
                Step::Advance(span) => now += span,
                Step::Back(span) => now -= span,
                Step::Check(cost) => {
                    let mut checks = Checks::new(Mode::Take);
                    checks.push(SUBJECT, &bands, cost, Group::ENFORCED);
                    let verdicts = store.decide_at(&checks, Timestamp::from_micros(now).unwrap());
                    let answers = decide(&mut model, now, cost);
                    for (verdict, answer) in verdicts.iter().zip(&answers) {
                        let retry = verdict.retry_after.after().map(|retry| retry.get());
                        let found = (retry, u64::from(verdict.remaining), verdict.reset_after.get());
                        let expected = (answer.retry, answer.remaining, answer.reset);
                        prop_assert_eq!(found, expected, "{:?} at {}", limits, now);
                    }
                }
            }
        }
    });
}
