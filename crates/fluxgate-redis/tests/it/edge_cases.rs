//! Cases that random sequences rarely reach, compared with the memory store.

use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Checks, Group, Mode, Subject, Verdicts};
use fluxgate_core::task::ready;
use fluxgate_core::{
    Algorithm, Band, Limit, LocalStore, ManualClock, MemoryStore, Store, Timestamp,
};
use fluxgate_redis::injected_time::ScriptStore;

use crate::sequences::{DAY, MILLI};
use crate::support::is_long;
use crate::wire::Wire;
use fluxgate_testkit::RedisServer;

const SUBJECT: Subject<'static> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"somebody",
};
const START: u64 = 20_000 * DAY;

struct Pair<'w> {
    clock: ManualClock,
    memory: MemoryStore<ManualClock>,
    redis: ScriptStore<&'w Wire, ManualClock>,
}

impl<'w> Pair<'w> {
    fn new(wire: &'w Wire) -> Self {
        wire.clear();
        let clock = ManualClock::new(Timestamp::from_micros(START).unwrap());
        Self {
            memory: MemoryStore::new(clock.clone(), 1_000, Retention::Forever),
            redis: ScriptStore::on_clock(wire, clock.clone()),
            clock,
        }
    }

    fn at(&self, micros: u64) -> &Self {
        self.clock.set(Timestamp::from_micros(micros).unwrap());
        self
    }

    /// The memory store decides one by one, the script in one call.
    fn take_all(&self, asked: &[(&Band, u64)]) -> Vec<Verdicts> {
        let checks: Vec<_> = asked
            .iter()
            .map(|(band, cost)| {
                let mut checks = Checks::new(Mode::Take);
                let bands = std::slice::from_ref(*band);
                checks.push(SUBJECT, bands, *cost, Group::ENFORCED);
                checks
            })
            .collect();
        let redis = self.redis.decide_all(&checks.iter().collect::<Vec<_>>());
        let redis: Result<Vec<_>, _> = redis.unwrap().into_iter().collect();
        let memory = checks.iter().map(|checks| self.memory.decide_now(checks));
        let memory: Vec<_> = memory.collect();
        assert_eq!(memory, redis.unwrap());
        memory
    }

    fn take(&self, band: &Band, cost: u64) -> bool {
        self.take_all(&[(band, cost)])[0][0].passes()
    }

    fn refund(&self, band: &Band, units: u64) {
        let bands = std::slice::from_ref(band);
        let memory = ready(self.memory.refund(SUBJECT, bands, units));
        assert_eq!(memory, ready(self.redis.refund(SUBJECT, bands, units)));
    }
}

fn band(algorithm: Algorithm, capacity: u64, window_ms: u64) -> Band {
    let window = Duration::from_millis(window_ms);
    let limit = Limit::builder(algorithm, capacity, window).build();
    Band::new("b", limit.unwrap())
}

/// `previous·(W−e)` and `room·W` differ by one, and both have some 74 bits: a
/// comparison in doubles would see no difference.
#[test]
fn a_sliding_window_is_exact_to_the_last_unit() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for case in 0..400_u64 {
        let window_ms = 366 * 86_400_000 - 7 * case;
        let width = i128::from(window_ms * MILLI);
        // A number that has an inverse for every window in question.
        let Some((previous, inverse)) = (1..)
            .map(|less| 1_000_000_000 - 31 * i128::from(case) - less)
            .find_map(|count| Some((count, inverse(count, width)?)))
        else {
            unreachable!("there is always a prime nearby");
        };
        for (span, passes) in [(inverse, false), (width - inverse, true)] {
            let room = (previous * span + i128::from(passes)) / width;
            assert_eq!(previous * span - room * width, if passes { -1 } else { 1 });
            let pair = Pair::new(&wire);
            let start = START as i128 - START as i128 % width;
            let before = band(Algorithm::SlidingWindow, 1_000_000_000, window_ms);
            pair.at(start as u64);
            assert!(pair.take(&before, previous as u64));
            let after = band(Algorithm::SlidingWindow, room as u64 + 1, window_ms);
            pair.at((start + 2 * width - span) as u64);
            assert_eq!(pair.take(&after, 1), passes);
        }
    }
}

/// x with x·number ≡ 1, by Euclid.
fn inverse(number: i128, modulus: i128) -> Option<i128> {
    let (mut old, mut new) = ((number % modulus, 1), (modulus, 0));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    (old.0 == 1).then(|| old.1.rem_euclid(modulus))
}

#[test]
fn one_key_may_be_a_bucket_a_log_and_a_window_in_one_call() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let token = band(Algorithm::TokenBucket, 5, 1_000);
    let log = band(Algorithm::SlidingLog, 5, 1_000);
    let other_log = band(Algorithm::SlidingLog, 5, 2_000);
    let fixed = band(Algorithm::FixedWindow, 5, 1_000);
    for order in [
        [&log, &token, &log, &fixed],
        [&token, &log, &token, &token],
        [&log, &other_log, &log, &log],
        [&fixed, &log, &log, &token],
        [&log, &log, &fixed, &log],
    ] {
        let pair = Pair::new(&wire);
        for now in [START, START, START + 1, START + 10] {
            pair.at(now);
            pair.take_all(&order.map(|band| (band, 2)));
            for band in order {
                pair.take(band, 1);
            }
        }
    }
}

#[test]
fn a_log_of_another_window_is_another_log() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let pair = Pair::new(&wire);
    let log = band(Algorithm::SlidingLog, 5, 1_000);
    assert!(pair.take(&log, 5));
    let longer = band(Algorithm::SlidingLog, 5, 2_000);
    assert!(pair.take(&longer, 3));
    pair.refund(&longer, 3);
    assert_eq!(wire.keys(), 1);
    assert!(!pair.take(&log, 1));
}

#[test]
fn a_log_of_many_events() {
    // The most that a log may have in a long run.
    let events = if is_long() { 100_000 } else { 20_000 };
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let pair = Pair::new(&wire);
    let log = band(Algorithm::SlidingLog, events, 1_000_000);
    let mut now = START;
    // Units of one instant are one event, so each needs its own instant.
    for _ in 0..events {
        now += 1 + now % 7;
        assert!(pair.at(now).take(&log, 1));
    }
    for cost in [1, 2, 999, events / 2, events, events + 1, 0] {
        assert_eq!(pair.take(&log, cost), cost == 0);
    }
    pair.refund(&log, events / 10 * 3);
    for cost in [1, events / 4, events / 20 - 1, 1] {
        pair.take(&log, cost);
    }
    // A clock that goes back moves the whole log.
    pair.at(now - 10 * DAY);
    for cost in [1, 10, 0] {
        pair.take(&log, cost);
    }
    pair.at(now - 10 * DAY + 999_950_000);
    for cost in [1, 10, 1_000, events] {
        pair.take(&log, cost);
    }
}
