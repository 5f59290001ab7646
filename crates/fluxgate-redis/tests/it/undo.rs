//! A charge that is taken back.

use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::{
    Algorithm, Band, Checks, Group, Limit, ManualClock, MemoryStore, Mode, RuleNumber, Store,
    Subject, Timestamp, Verdict, ready,
};
use fluxgate_redis::injected_time::{Charged, ScriptStore};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::sequences::{DAY, Numbers, few_numbers};
use crate::wire::Wire;
use fluxgate_testkit::RedisServer;

const START: u64 = 20_000 * DAY;
const SUBJECT: Subject<'static> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"somebody",
};

fn checks(band: &Band, cost: u64, mode: Mode) -> Checks<'_> {
    let mut checks = Checks::new(mode);
    checks.push(SUBJECT, std::slice::from_ref(band), cost, Group::ENFORCED);
    checks
}

/// The script, where charges are taken back, beside a store that never saw
/// those charges.
struct Pair<'w> {
    clock: ManualClock,
    now: u64,
    never_was: MemoryStore<ManualClock>,
    redis: ScriptStore<&'w Wire, ManualClock>,
    band: Band,
    /// Charges that will be taken back.
    open: Vec<(u64, Charged)>,
}

impl<'w> Pair<'w> {
    fn new(wire: &'w Wire, limit: Limit) -> Self {
        wire.clear();
        let clock = ManualClock::new(Timestamp::from_micros(START).unwrap());
        Self {
            never_was: MemoryStore::new(clock.clone(), 1_000, Retention::Forever),
            redis: ScriptStore::on_clock(wire, clock.clone()),
            clock,
            now: START,
            band: Band::new("b", limit),
            open: Vec::new(),
        }
    }

    fn forward(&mut self, micros: u64) {
        self.now += micros;
        self.clock.set(Timestamp::from_micros(self.now).unwrap());
    }

    /// Charges what stays, there and, if it was admitted, here.
    fn take(&self, cost: u64) -> (Verdict, Option<Verdict>) {
        let checks = checks(&self.band, cost, Mode::Take);
        let redis = ready(self.redis.decide(&checks)).unwrap()[0];
        let here = redis
            .passes()
            .then(|| self.never_was.decide_now(&checks)[0]);
        (redis, here)
    }

    fn take_for_now(&mut self, cost: u64) -> bool {
        let checks = checks(&self.band, cost, Mode::Take);
        let (verdicts, charged) = self.redis.decide_undoable(&checks).unwrap();
        let passes = verdicts[0].passes();
        if passes {
            self.open.push((cost, charged));
        }
        passes
    }

    fn undo(&mut self, index: usize) {
        if self.open.is_empty() {
            return;
        }
        let (cost, charged) = self.open.remove(index % self.open.len());
        let checks = checks(&self.band, cost, Mode::Take);
        self.redis.undo(&checks, &charged).unwrap();
    }

    fn look(&self) -> (Verdict, Verdict) {
        let checks = checks(&self.band, 0, Mode::Peek);
        let redis = ready(self.redis.decide(&checks)).unwrap()[0];
        (redis, self.never_was.decide_now(&checks)[0])
    }
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
];

#[test]
fn at_once_it_is_as_if_it_had_never_been() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for algorithm in ALGORITHMS {
        for before in [0, 3] {
            let mut pair = Pair::new(&wire, limit(algorithm, 7, 1_000));
            pair.take(before);
            pair.forward(1_234);
            assert!(pair.take_for_now(4));
            pair.undo(0);
            for later in [0, 1, 500_000, 1_000_000] {
                pair.forward(later);
                let (redis, never_was) = pair.look();
                assert_eq!(redis, never_was, "{algorithm:?} {before} {later}");
            }
        }
    }
}

/// Of a bucket that owed before, what would refill meanwhile stays charged.
#[test]
fn later_it_is_so_but_for_what_a_bucket_refills_meanwhile() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for algorithm in ALGORITHMS {
        for meanwhile in [1, 999, 400_000, 1_000_000, 2_500_000] {
            for before in [0, 3] {
                let mut pair = Pair::new(&wire, limit(algorithm, 7, 1_000));
                pair.take(before);
                assert!(pair.take_for_now(4));
                pair.forward(meanwhile);
                pair.undo(0);
                let (redis, never_was) = pair.look();
                if before > 0 && algorithm.is_bucket() {
                    let more = redis.reset_after.get() - never_was.reset_after.get();
                    assert!(more <= meanwhile, "{algorithm:?} {meanwhile}");
                } else {
                    assert_eq!(redis, never_was, "{algorithm:?} {meanwhile} {before}");
                }
                if before == 0 && meanwhile < 400_000 {
                    assert_eq!(wire.keys(), 0, "{algorithm:?} {meanwhile}");
                }
            }
        }
    }
}

fn limit(algorithm: Algorithm, capacity: u64, window_ms: u64) -> Limit {
    let window = Duration::from_millis(window_ms);
    let limit = Limit::builder(algorithm, capacity, window).build();
    limit.unwrap()
}

/// Where a refund would open the gate: the bucket refills while the charge
/// stands, though without it it would have been full.
#[test]
fn it_gives_less_than_a_refund_where_others_came_in_between() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let mut pair = Pair::new(&wire, limit(Algorithm::TokenBucket, 10, 10));
    assert!(pair.take_for_now(10));
    pair.forward(9_000);
    assert!(pair.take(9).0.passes());
    pair.undo(0);
    let (redis, never_was) = pair.look();
    assert_eq!((redis.remaining, never_was.remaining), (1, 1));
}

#[test]
fn only_what_was_charged_is_taken_back() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let mut pair = Pair::new(&wire, limit(Algorithm::FixedWindow, 10, 1_000));
    pair.take(8);
    // Refused, and not charged.
    let band = pair.band.clone();
    let refused = checks(&band, 5, Mode::Take);
    let (verdicts, charged) = pair.redis.decide_undoable(&refused).unwrap();
    assert!(!verdicts[0].passes());
    pair.redis.undo(&refused, &charged).unwrap();
    assert_eq!(pair.look().0.remaining, 2);
    // Another window is not touched.
    assert!(pair.take_for_now(2));
    pair.forward(1_000_000);
    pair.take(3);
    pair.undo(0);
    assert_eq!(pair.look().0.remaining, 7);
}

#[derive(Clone, Debug)]
enum Step {
    Forward(u64),
    Take(u64),
    TakeForNow(u64),
    Undo(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![0..5_u64, 0..3_000_u64, 0..2_000_000_u64].prop_map(Step::Forward),
        3 => (0..8_u64).prop_map(Step::Take),
        2 => (0..8_u64).prop_map(Step::TakeForNow),
        2 => (0..8_usize).prop_map(Step::Undo),
    ]
}

/// Never less charged than for those whose charges stand; and but for buckets,
/// not more either.
fn never_leaves_less(numbers: &Numbers, steps: &[Step], wire: &Wire) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(wire, numbers.limit());
    for step in steps {
        match *step {
            Step::Forward(micros) => pair.forward(micros),
            Step::Take(cost) => {
                let (_, here) = pair.take(cost);
                // What is admitted with more charged is admitted with less.
                prop_assert!(here.is_none_or(|here| here.passes()));
            }
            Step::TakeForNow(cost) => {
                pair.take_for_now(cost);
            }
            Step::Undo(index) => pair.undo(index),
        }
        let (redis, never_was) = pair.look();
        prop_assert!(redis.remaining <= never_was.remaining);
        prop_assert!(redis.reset_after >= never_was.reset_after);
        if pair.open.is_empty() && !numbers.algorithm.is_bucket() {
            prop_assert_eq!(redis, never_was);
        }
    }
    Ok(())
}

#[test]
fn it_never_leaves_less_charged_than_the_rules_demand() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let config = Config {
        cases: 1_500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(4),
        ..Config::default()
    };
    let steps = prop::collection::vec(step(), 1..50);
    proptest!(config, |(numbers in few_numbers(), steps in steps)| {
        never_leaves_less(&numbers, &steps, &wire)?;
    });
}
