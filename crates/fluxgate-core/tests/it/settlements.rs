//! Holds that are settled while others wait: over every interval, the requests that go on use
//! at most C + R·t/P units.

use std::time::Duration;

use fluxgate_core::task::ready;
use fluxgate_core::{HoldId, RequestContext, Settlement};
use proptest::prelude::*;

use crate::support::{Gate, SECOND, START, cases, global, parse};

/// A request that was admitted.
#[derive(Debug)]
struct Admitted {
    goes_on: u64,
    hold: HoldId,
    /// The units that it uses, or may use as long as it is held.
    units: u64,
}

/// A limit that lets held requests wait, and what was admitted.
struct Trial {
    gate: Gate,
    capacity: u64,
    refill: u64,
    period: u64,
    now: u64,
    held: Vec<Admitted>,
    settled: Vec<(u64, u64)>,
}

impl Trial {
    fn new(style: &str, capacity: u64, refill: u64, period: u64) -> Self {
        Self {
            gate: Gate::new(&global(&format!(
                "{style}, bands: [ {{ capacity: {capacity}, window: 1s, refill: {refill}, period: {period}s }} ]"
            ))),
            capacity,
            refill,
            period: period * SECOND,
            now: START,
            held: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// Gives the limit another style, with the same numbers. The old rules go on elsewhere.
    fn change(&self, style: &str) {
        let (capacity, refill, period) = (self.capacity, self.refill, self.period / SECOND);
        let rules = global(&format!(
            "{style}, bands: [ {{ capacity: {capacity}, window: 1s, refill: {refill}, period: {period}s }} ]"
        ));
        drop(self.gate.limiter.swap_rules(parse(&rules)));
    }

    /// Sends a request. Returns its delay if it is admitted.
    fn come(&mut self, cost: u64) -> Option<u64> {
        let context = RequestContext::builder()
            .cost(cost)
            .hold(Duration::from_secs(3_600));
        let decision = self.gate.at(self.now).check(&context.build());
        let hold = decision.hold()?;
        let delay = decision.delay_micros().get();
        self.held.push(Admitted {
            goes_on: self.now + delay,
            hold,
            units: cost,
        });
        Some(delay)
    }

    fn is_waiting(&self) -> bool {
        self.held.iter().any(|held| held.goes_on > self.now)
    }

    /// Settles a request. One that still waits leaves, whatever it would have cost.
    fn settle(&mut self, index: usize, cost: u64) {
        let Admitted {
            goes_on,
            hold,
            units,
        } = self.held.swap_remove(index);
        let cost = if goes_on > self.now {
            0
        } else {
            cost.min(units)
        };
        let settle = |cost| {
            let limiter = &self.gate.at(self.now).limiter;
            ready(limiter.settle(hold, Settlement::Cost(cost))).unwrap()
        };
        assert_eq!(settle(cost).unwrap().charged, cost);
        assert_eq!(settle(0), None, "a hold is settled once");
        if cost > 0 {
            self.settled.push((goes_on, cost));
        }
    }

    /// Returns what went on and when, as if all that is held went on as it was reserved.
    fn used(&self) -> Vec<(u64, u64)> {
        let held = self.held.iter().map(|held| (held.goes_on, held.units));
        let mut used: Vec<_> = self.settled.iter().copied().chain(held).collect();
        used.sort_unstable();
        used
    }

    /// Returns an interval with more than C + R·t/P units, if there is one. Delays are rounded
    /// up by less than a microsecond.
    fn exceeded(&self) -> Option<String> {
        let used = self.used();
        for (first, (from, _)) in used.iter().enumerate() {
            let mut sum = 0;
            for (at, units) in &used[first..] {
                sum += units;
                let most = self.capacity * self.period + self.refill * (at - from + 1);
                if sum * self.period > most {
                    return Some(format!("{sum} units from {from} to {at}"));
                }
            }
        }
        None
    }
}

/// Calls of a language model: each reserves 100 tokens, waits for its turn, uses 10 to 60 and is
/// settled 100 ms later, while others wait.
#[test]
fn settled_tokens_do_not_exceed_the_budget_while_others_wait() {
    let mut trial = Trial::new("on_exceed: wait, max_wait: 5s", 500, 200, 1);
    for tick in 0..450_u64 {
        trial.now = START + tick * 10_000;
        if tick.is_multiple_of(3) {
            trial.come(100);
        }
        let ended = |held: &Admitted| held.goes_on + 100_000 <= trial.now;
        let ended: Vec<_> = (0..trial.held.len())
            .filter(|at| ended(&trial.held[*at]))
            .collect();
        for index in ended.into_iter().rev() {
            trial.settle(index, 10 + tick % 6 * 10);
        }
    }
    assert_eq!(trial.exceeded(), None);
    let total: u64 = trial.used().iter().map(|(_, units)| units).sum();
    assert!(total > 300, "{total} tokens were used");
}

/// Waiting checks that are released, as by a client that gives up.
#[test]
fn released_waiters_hand_out_no_instant_twice() {
    let mut trial = Trial::new("on_exceed: wait, max_wait: 10s", 2, 1, 1);
    for second in 0..9 {
        trial.now = START + second * SECOND;
        for _ in 0..6 {
            trial.come(1);
        }
        // Every second one that waits leaves, the first of them first.
        let waiting: Vec<_> = (0..trial.held.len())
            .filter(|at| trial.held[*at].goes_on > trial.now)
            .step_by(2)
            .collect();
        for index in waiting.into_iter().rev() {
            trial.settle(index, 0);
        }
    }
    assert_eq!(trial.exceeded(), None);
}

#[test]
fn a_settlement_beside_a_waiter_returns_what_no_later_charge_is_behind() {
    for (held, later, cost, delay) in [
        // Nothing was charged after it but the waiter's unit: of three units two return.
        (3, 1, 0, 0),
        (3, 1, 1, 1),
        // Settled by no more than what is behind it: nothing returns.
        (3, 1, 2, 2),
        (2, 3, 0, 4),
    ] {
        let mut trial = Trial::new("on_exceed: wait, max_wait: 9s", 5, 1, 1);
        trial.come(5 - held).unwrap();
        trial.come(held).unwrap();
        let waiter = trial.come(later).unwrap();
        assert_eq!(waiter, later * SECOND);
        trial.settle(1, cost);
        // Of what the waiter owes, `delay` is left for the newcomer to wait for.
        let newcomer = trial.come(1).unwrap();
        assert_eq!(
            newcomer,
            delay * SECOND,
            "{held} settled with {cost}, {later} behind"
        );
        assert_eq!(trial.exceeded(), None);
    }
}

#[test]
fn a_hold_returns_everything_once_nobody_waits() {
    let mut trial = Trial::new("on_exceed: wait, max_wait: 9s", 5, 1, 1);
    trial.come(3).unwrap();
    trial.come(2).unwrap();
    let waiter = trial.come(1).unwrap();
    assert_eq!(waiter, SECOND);
    trial.now += SECOND;
    trial.settle(0, 0);
    assert_eq!(trial.gate.left(&[]), [3]);
}

/// The rule begins to wait while a hold is out that knows nothing of it.
#[test]
fn a_hold_of_a_rule_that_did_not_wait_returns_nothing_that_a_waiter_counts_on() {
    let mut trial = Trial::new("on_exceed: reject", 5, 1, 1);
    trial.come(5).unwrap();
    trial.change("on_exceed: wait, max_wait: 9s");
    assert_eq!(trial.come(3), Some(3 * SECOND));
    // Of five units three are behind it.
    trial.settle(0, 0);
    assert_eq!(trial.come(1), Some(2 * SECOND));
    assert_eq!(trial.exceeded(), None);
    // The same when the rule stops waiting while requests wait.
    let mut trial = Trial::new("on_exceed: wait, max_wait: 9s", 5, 1, 1);
    trial.come(5).unwrap();
    assert_eq!(trial.come(3), Some(3 * SECOND));
    trial.settle(0, 0);
    trial.change("on_exceed: reject");
    trial.now += 2 * SECOND;
    assert_eq!(trial.come(1), Some(0));
    // The waiter lies behind it.
    trial.settle(1, 0);
    assert_eq!(trial.gate.left(&[]), [0]);
    assert_eq!(trial.exceeded(), None);
}

/// No request waits. The bucket owes only because a settlement was higher than its reservation.
#[test]
fn a_rule_that_never_waits_returns_everything_while_it_owes() {
    let mut trial = Trial::new("on_exceed: reject", 5, 1, 1);
    trial.come(3).unwrap();
    trial.come(2).unwrap();
    let hold = trial.held[1].hold;
    let settled = ready(trial.gate.limiter.settle(hold, Settlement::Cost(7)));
    assert_eq!(settled.unwrap().unwrap().uncharged, 0);
    let owed = || trial.gate.state(&[])[0].reset_after.as_secs();
    assert_eq!(owed(), 10);
    let hold = trial.held[0].hold;
    let settled = ready(trial.gate.limiter.settle(hold, Settlement::Cost(0)));
    assert_eq!(settled.unwrap().unwrap().charged, 0);
    assert_eq!(owed(), 7);
}

/// A queue that was given up long ago must not count as one that waits.
#[test]
fn reservations_that_have_passed_keep_nothing_back() {
    let mut trial = Trial::new("on_exceed: wait, max_wait: 9s", 1, 1, 1);
    for _ in 0..5 {
        trial.come(1).unwrap();
    }
    for index in (1..5).rev() {
        trial.settle(index, 0);
    }
    trial.now += 60 * SECOND;
    trial.come(1).unwrap();
    assert_eq!(trial.gate.left(&[]), [0]);
    trial.settle(1, 0);
    assert_eq!(trial.gate.left(&[]), [1]);
}

#[test]
fn a_shaping_queue_returns_only_its_last_request() {
    let mut trial = Trial::new("algorithm: leaky_bucket, shape: true", 5, 1, 1);
    for delay in 0..3 {
        assert_eq!(trial.come(1).unwrap(), delay * SECOND);
    }
    trial.settle(0, 0);
    assert_eq!(trial.gate.left(&[]), [2], "the others keep their places");
    // The last one is now at index 0.
    trial.settle(0, 0);
    assert_eq!(trial.gate.left(&[]), [3]);
}

/// An operator's reset or refund leaves less than the hold was charged.
#[test]
fn a_settlement_after_a_reset_or_a_refund_mints_nothing() {
    for style in [
        "on_exceed: wait, max_wait: 9s",
        "algorithm: leaky_bucket",
        "algorithm: leaky_bucket, shape: true",
    ] {
        for refund in [None, Some(2), Some(100)] {
            let mut trial = Trial::new(style, 5, 1, 1);
            trial.come(2).unwrap();
            trial.come(3).unwrap();
            match refund {
                Some(units) => drop(trial.gate.refund(&[], units)),
                None => drop(ready(trial.gate.limiter.reset("s", "r", &[])).unwrap()),
            }
            trial.settle(1, 0);
            trial.settle(0, 0);
            let state = &trial.gate.state(&[])[0];
            // The refund took the last request of a queue out of its place.
            let is_full = !style.contains("shape") || refund != Some(2);
            assert_eq!(
                state.remaining,
                if is_full { 5 } else { 2 },
                "{style} {refund:?}"
            );
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Come(u64),
    /// The request with this number is settled with so much, if anybody waits.
    Settle(usize, u64),
    /// The rule begins to let requests wait, or ceases to.
    Change(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..2_000_u64).prop_map(Step::Pass),
        4 => (1..=6_u64).prop_map(Step::Come),
        4 => (any::<usize>(), 0..=4_u64).prop_map(|(index, cost)| Step::Settle(index, cost)),
        1 => any::<bool>().prop_map(Step::Change),
    ]
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn settlements_beside_waiters_release_no_more_than_a_bucket_and_its_refill(
        (capacity, refill) in (1..=6_u64, 1..=7_u64),
        max_wait in 1..=20_u64,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let style = format!("on_exceed: wait, max_wait: {max_wait}s");
        let mut trial = Trial::new(&style, capacity, refill, 3);
        for step in steps {
            match step {
                Step::Pass(millis) => trial.now += millis * 1_000 + 137,
                Step::Come(cost) => {
                    trial.come(cost.min(capacity));
                }
                Step::Settle(index, cost) => {
                    // What returns while nobody waits is like a refund.
                    if trial.is_waiting() {
                        trial.settle(index % trial.held.len(), cost);
                    }
                }
                Step::Change(waits) => {
                    trial.change(if waits { &style } else { "on_exceed: reject" });
                }
            }
        }
        prop_assert_eq!(trial.exceeded(), None);
    }
}
