//! A rule begins to let requests wait, or ceases to, while its holds are out: the script and the
//! memory store return the same units.

use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;
use fluxgate_core::{
    Decision, HoldId, Limiter, ManualClock, MemoryStore, RequestContext, RuleSets, Settlement,
    Store, Timestamp,
};
use fluxgate_redis::injected_time::ScriptStore;
use fluxgate_testkit::RedisServer;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::support::{cases, rules};
use crate::wire::Wire;

const START: u64 = 20_000 * 86_400_000_000;
const STYLES: [&str; 3] = [
    "on_exceed: reject",
    "on_exceed: wait, max_wait: 9s",
    "algorithm: leaky_bucket, shape: true",
];

fn rules_of(style: usize, capacity: u64, refill: u64) -> RuleSets {
    let style = STYLES[style];
    rules(&format!(
        "rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: r, scope: global, {style}, \
         bands: [ {{ capacity: {capacity}, window: 1s, refill: {refill}, period: 3s }} ] }} ] }} }}"
    ))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Come(u64),
    Settle(usize, u64),
    Cancel(usize),
    Refund(u64),
    Change(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..2_000_u64).prop_map(Step::Pass),
        5 => (0..=6_u64).prop_map(Step::Come),
        4 => (any::<usize>(), 0..=9_u64).prop_map(|(index, cost)| Step::Settle(index, cost)),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => (1..=3_u64).prop_map(Step::Refund),
        1 => (0..STYLES.len()).prop_map(Step::Change),
    ]
}

/// What the two stores must agree on.
fn shown(decision: &Decision) -> (bool, Duration, Option<u64>, Option<Duration>, Duration) {
    (
        decision.allowed(),
        decision.delay(),
        decision.remaining(),
        decision.retry_after(),
        decision.reset_after(),
    )
}

/// A limiter, and the holds and charges of what it admitted.
struct Side<S> {
    limiter: Limiter<S>,
    held: Vec<(HoldId, RequestContext<'static>, Decision)>,
}

impl<S: Store> Side<S> {
    fn new(store: S, capacity: u64, refill: u64) -> Self {
        Self {
            limiter: Limiter::new(rules_of(0, capacity, refill), store),
            held: Vec::new(),
        }
    }

    /// Takes a step, and returns what is to be seen of it.
    fn step(&mut self, step: Step, capacity: u64, refill: u64) -> String {
        match step {
            Step::Pass(_) => String::new(),
            Step::Come(cost) => {
                let context = RequestContext::builder().cost(cost.min(capacity));
                let context = context.hold(Duration::from_secs(3_600)).build();
                let decision = ready(self.limiter.check("api", &context));
                let shown = format!("{:?}", shown(&decision));
                if let Some(hold) = decision.hold() {
                    self.held.push((hold, context, decision));
                }
                shown
            }
            Step::Settle(index, cost) if !self.held.is_empty() => {
                let (hold, ..) = self.held.swap_remove(index % self.held.len());
                let settled = ready(self.limiter.settle(hold, Settlement::Cost(cost)));
                format!("{:?}", settled.unwrap())
            }
            Step::Cancel(index) if !self.held.is_empty() => {
                let (_, context, decision) = self.held.swap_remove(index % self.held.len());
                if let Some(charge) = decision.charge(&context) {
                    ready(self.limiter.cancel(charge)).unwrap();
                }
                String::new()
            }
            Step::Settle(..) | Step::Cancel(_) => String::new(),
            Step::Refund(units) => {
                let left = ready(self.limiter.refund("api", "r", &[], units));
                format!("{left:?}")
            }
            Step::Change(style) => {
                drop(self.limiter.swap_rules(rules_of(style, capacity, refill)));
                String::new()
            }
        }
    }

    fn state(&self) -> String {
        let states = ready(self.limiter.state("api", "r", &[])).unwrap();
        format!("{:?} {:?}", states[0].remaining, states[0].reset_after)
    }
}

#[test]
fn units_return_alike_while_a_rule_begins_to_wait_or_ceases_to() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let config = Config {
        cases: cases(400),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(35),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let sequence = (1..=6_u64, 1..=7_u64, prop::collection::vec(step(), 1..60));
    let run = |(capacity, refill, steps): (u64, u64, Vec<Step>)| {
        wire.clear();
        let clock = ManualClock::new(Timestamp::from_micros(START).unwrap());
        let memory = MemoryStore::new(clock.clone(), 100, Retention::Forever);
        let mut memory = Side::new(memory, capacity, refill);
        let redis = ScriptStore::on_clock(&wire, clock.clone());
        let mut redis = Side::new(redis, capacity, refill);
        let mut now = START;
        for (at, step) in steps.into_iter().enumerate() {
            if let Step::Pass(millis) = step {
                now += millis * 1_000 + 137;
                clock.set(Timestamp::from_micros(now).unwrap());
            }
            let expected = memory.step(step, capacity, refill);
            let found = redis.step(step, capacity, refill);
            prop_assert_eq!(found, expected, "step {}: {:?}", at, step);
            prop_assert_eq!(redis.state(), memory.state(), "step {}: {:?}", at, step);
        }
        Ok::<_, TestCaseError>(())
    };
    let result = TestRunner::new(config).run(&sequence, run);
    result.unwrap_or_else(|failure| panic!("{failure}"));
}
