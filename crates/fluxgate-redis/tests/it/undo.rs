//! Undoing a charge.

use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Checks, Group, Mode, Subject, Verdict};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, Band, Limit, LocalStore, ManualClock, MemoryStore, Store, Timestamp,
};
use fluxgate_redis::injected_time::{ScriptStore, UndoableDecision};
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

/// The script, which undoes charges, next to a store that never saw those
/// charges.
struct Pair<'w> {
    clock: ManualClock,
    now: u64,
    never_was: MemoryStore<ManualClock>,
    redis: ScriptStore<&'w Wire, ManualClock>,
    band: Band,
    /// Charges that will be undone.
    open: Vec<(u64, UndoableDecision)>,
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

    fn back(&mut self, micros: u64) {
        self.now -= micros;
        self.clock.set(Timestamp::from_micros(self.now).unwrap());
    }

    /// Makes a charge that stays: in the script's store and, if admitted, in the
    /// other.
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
fn an_immediate_undo_leaves_no_trace() {
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

/// Without other charges, nothing is left of it later either.
#[test]
fn a_later_undo_leaves_no_trace() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for algorithm in ALGORITHMS {
        for meanwhile in [1, 999, 400_000, 428_572, 700_000, 1_000_000, 2_500_000] {
            for before in [0, 3] {
                let mut pair = Pair::new(&wire, limit(algorithm, 7, 1_000));
                pair.take(before);
                assert!(pair.take_for_now(4));
                pair.forward(meanwhile);
                pair.undo(0);
                let (redis, never_was) = pair.look();
                assert_eq!(redis, never_was, "{algorithm:?} {meanwhile} {before}");
                if before == 0 && meanwhile < 400_000 {
                    assert_eq!(wire.keys(), 0, "{algorithm:?} {meanwhile}");
                }
            }
        }
    }
}

/// A bucket refills however often requests are denied and undone.
#[test]
fn repeated_charges_and_undos_do_not_stop_the_refill() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let mut pair = Pair::new(&wire, limit(algorithm, 100, 10_000));
        pair.take(50);
        for round in 0..600 {
            assert!(pair.take_for_now(1));
            pair.forward(1_500);
            if round % 100 == 0 {
                pair.take(1);
            }
            pair.undo(0);
            let (redis, never_was) = pair.look();
            assert_eq!(redis, never_was, "{algorithm:?} {round}");
            pair.forward(1);
        }
    }
}

fn limit(algorithm: Algorithm, capacity: u64, window_ms: u64) -> Limit {
    let window = Duration::from_millis(window_ms);
    let limit = Limit::builder(algorithm, capacity, window).build();
    limit.unwrap()
}

/// A refund would return too much here: the bucket refills while the charge
/// stands, but without the charge it would have been full.
#[test]
fn an_undo_returns_less_than_a_refund_after_other_charges() {
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

/// A charge that counted on an earlier one, which is undone first: the bucket was
/// full in between, and only the first undo knew.
#[test]
fn an_undo_returns_less_after_the_undo_of_an_earlier_charge() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    // One unit per millisecond.
    let mut pair = Pair::new(&wire, limit(Algorithm::TokenBucket, 10, 10));
    assert!(pair.take_for_now(5));
    pair.forward(10);
    assert!(pair.take_for_now(4));
    pair.forward(10);
    pair.undo(0);
    pair.forward(2_000);
    assert!(pair.take(4).0.passes());
    pair.undo(0);
    let (redis, never_was) = pair.look();
    assert_eq!(never_was.reset_after.get(), 4_000);
    let more = redis.reset_after.get() - 4_000;
    assert!(more <= 2_010, "{more}");
    // The note would expire, but with an injected time no key does.
    assert_eq!(wire.keys(), 2);
    let note = redis::cmd("KEYS").arg("fluxgate:2:undo:{*").clone();
    assert_eq!(wire.run::<Vec<Vec<u8>>>(&note).len(), 1);
}

/// The clock goes back after the charge: the undo returns nothing extra.
#[test]
fn an_undo_after_the_clock_went_back_returns_nothing_extra() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let mut pair = Pair::new(&wire, limit(Algorithm::TokenBucket, 10, 10));
    assert!(pair.take_for_now(5));
    pair.forward(3_000);
    assert!(pair.take(5).0.passes());
    pair.back(3_001);
    pair.undo(0);
    let (redis, never_was) = pair.look();
    assert!(redis.reset_after >= never_was.reset_after);
}

#[test]
fn only_what_was_charged_is_undone() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let mut pair = Pair::new(&wire, limit(Algorithm::FixedWindow, 10, 1_000));
    pair.take(8);
    // Denied, so not charged.
    let band = pair.band.clone();
    let refused = checks(&band, 5, Mode::Take);
    let (verdicts, charged) = pair.redis.decide_undoable(&refused).unwrap();
    assert!(!verdicts[0].passes());
    pair.redis.undo(&refused, &charged).unwrap();
    assert_eq!(pair.look().0.remaining, 2);
    // Another window does not change.
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

/// The script's store never has less charged than the other; except for buckets,
/// not more either. With one undo at a time, a bucket is behind by at most the
/// time that a charge stood, and not at all without other charges. Where requests
/// wait, those behind a charge keep their instants, so it may stay.
fn never_leaves_less(
    numbers: &Numbers,
    steps: &[Step],
    most_open: usize,
    wire: &Wire,
) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(wire, numbers.limit());
    let (mut charged_at, mut longest) = (START, 0);
    let mut others_came = false;
    for step in steps {
        match *step {
            Step::Forward(micros) => pair.forward(micros),
            Step::Take(cost) => {
                let (_, here) = pair.take(cost);
                // A request admitted with more charged is admitted with less.
                prop_assert!(here.is_none_or(|here| here.passes()));
                others_came |= !pair.open.is_empty();
            }
            Step::TakeForNow(cost) if pair.open.len() < most_open => {
                if most_open == 1 {
                    // At the instant of an undo the order is not defined.
                    pair.forward(1);
                }
                pair.take_for_now(cost);
                charged_at = pair.now;
            }
            Step::TakeForNow(_) => {}
            Step::Undo(index) => {
                longest = longest.max(pair.now - charged_at);
                pair.undo(index);
            }
        }
        let (redis, never_was) = pair.look();
        prop_assert!(redis.remaining <= never_was.remaining);
        prop_assert!(redis.reset_after >= never_was.reset_after);
        if !pair.open.is_empty() {
            continue;
        }
        if !numbers.algorithm.is_bucket() || most_open == 1 && !others_came {
            prop_assert_eq!(redis, never_was);
        } else if most_open == 1 && !numbers.shape && numbers.max_wait_ms.is_none() {
            let more = redis.reset_after.get() - never_was.reset_after.get();
            // Both are rounded up.
            prop_assert!(more <= longest + 1, "{more} of {longest}");
        }
    }
    Ok(())
}

/// Buckets that refill within milliseconds, with as many concurrent charges as
/// they hold.
fn small_buckets() -> impl Strategy<Value = Numbers> {
    let algorithms = [Algorithm::TokenBucket, Algorithm::LeakyBucket];
    let algorithms = prop::sample::select(algorithms.to_vec());
    let capacities = prop::sample::select(&[4, 6, 12][..]);
    let windows = prop::sample::select(&[3, 6, 10][..]);
    let numbers = (algorithms, capacities, windows);
    numbers.prop_map(|(algorithm, capacity, window_ms)| Numbers {
        algorithm,
        capacity,
        window_ms,
        calendar: None,
        refill: None,
        period_ms: None,
        max_wait_ms: None,
        shape: false,
    })
}

fn short_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop_oneof![0..5_u64, 0..800_u64, 0..3_000_u64].prop_map(Step::Forward),
        5 => (1..5_u64).prop_map(Step::Take),
        5 => (1..7_u64).prop_map(Step::TakeForNow),
        4 => (0..8_usize).prop_map(Step::Undo),
    ]
}

fn run(
    seed: u64,
    most_open: usize,
    numbers: BoxedStrategy<Numbers>,
    step: impl Strategy<Value = Step>,
) {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let config = Config {
        cases: crate::support::cases(700),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let steps = prop::collection::vec(step, 1..60);
    proptest!(config, |(numbers in numbers, steps in steps)| {
        never_leaves_less(&numbers, &steps, most_open, &wire)?;
    });
}

#[test]
fn an_undo_never_leaves_too_little_charged() {
    run(4, usize::MAX, few_numbers(), step());
    run(6, usize::MAX, small_buckets().boxed(), short_step());
}

#[test]
fn one_undo_leaves_at_most_the_time_the_charge_stood() {
    run(5, 1, few_numbers(), step());
    run(7, 1, small_buckets().boxed(), short_step());
}
