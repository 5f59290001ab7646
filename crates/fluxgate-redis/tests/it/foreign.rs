//! Foreign values at keys, and mutated replies.

use std::sync::Mutex;
use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::store::{Checks, Group, Mode, Reason, Subject};
use fluxgate_core::task::ready;
use fluxgate_core::{Algorithm, Band, Limit, ManualClock, Store, StoreError, Timestamp};
use fluxgate_redis::injected_time::{ScriptStore, Server};
use fluxgate_redis::reason;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::sequences::{DAY, all_numbers};
use crate::wire::Wire;
use fluxgate_testkit::RedisServer;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
];

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(20_000 * DAY).unwrap())
}

fn subject(name: &str) -> Subject<'_> {
    Subject {
        rule: RuleNumber::NONE,
        bytes: name.as_bytes(),
    }
}

fn band(algorithm: Algorithm) -> Band {
    let limit = Limit::builder(algorithm, 10, Duration::from_secs(1));
    Band::new("b", limit.build().unwrap())
}

fn checks<'b>(name: &'b str, band: &'b Band) -> Checks<'b> {
    let mut checks = Checks::new(Mode::Take);
    let bands = std::slice::from_ref(band);
    checks.push(subject(name), bands, 1, Group::ENFORCED);
    checks
}

/// Stores a value at a key; an underscore stands for a space.
fn put(wire: &Wire, key: &[u8], what: &str) {
    let mut words = what.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    command.arg(key);
    for word in words {
        command.arg(word.replace('_', " "));
    }
    wire.run::<redis::Value>(&command);
}

fn dump(wire: &Wire, key: &[u8]) -> Vec<u8> {
    wire.run(redis::cmd("DUMP").arg(key))
}

const FOREIGN: [&str; 15] = [
    "LPUSH a",
    "SADD a",
    "HSET a b",
    "ZADD 1 a",
    "ZADD -inf a",
    "XADD * a b",
    "SET hello",
    "SET 42",
    "SET nineteen-characters",
    "SET 2024-01-01_00:00:00",
    "SET _123456789012345678",
    "SET 1.23456789012345678",
    "SET -123456789012345678",
    "SET twenty-one-characters",
    "PFADD a",
];

#[test]
fn a_foreign_value_fails_only_its_own_decision_and_is_not_changed() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let store = ScriptStore::on_clock(&wire, clock());
    for algorithm in ALGORITHMS {
        for what in FOREIGN {
            wire.clear();
            let band = band(algorithm);
            let bands = std::slice::from_ref(&band);
            let key = &store.keys(subject("foreign"), bands)[0];
            put(&wire, key, what);
            let before = dump(&wire, key);

            let of = |name| checks(name, &band);
            let (ours, foreign, other) = (of("ours"), of("foreign"), of("other"));
            let mut both = of("ours");
            both.push(subject("foreign"), bands, 1, Group::ENFORCED);
            let mut shadowed = of("ours");
            shadowed.push(subject("foreign"), bands, 1, Group::shadow(0));
            let batch = [&ours, &foreign, &both, &shadowed, &other];
            let verdicts = store.decide_all(&batch).unwrap();

            let reasons = verdicts.iter().map(|verdicts| match verdicts {
                Ok(verdicts) => Ok(verdicts[0].remaining),
                Err(error) => Err(error.reason),
            });
            let bad = Err(reason::BAD_TYPES);
            assert_eq!(
                reasons.collect::<Vec<_>>(),
                [Ok(9), bad, bad, bad, Ok(9)],
                "{algorithm:?} {what}"
            );
            // A lone request gets the same error, and so does a refund.
            let alone = ready(store.decide(&foreign)).unwrap_err();
            assert_eq!(alone.reason, reason::BAD_TYPES);
            let refund = ready(store.refund(subject("foreign"), bands, 1)).unwrap_err();
            assert_eq!(refund.reason, reason::BAD_TYPES);
            assert_eq!(dump(&wire, key), before, "{algorithm:?} {what}");
            // Other checks of the same request were not charged.
            let again = ready(store.decide(&ours)).unwrap();
            assert_eq!(again[0].remaining, 8, "{algorithm:?} {what}");
        }
    }
}

#[test]
fn a_state_of_another_algorithm_is_not_foreign() {
    let is_bucket = |band: &Band| band.limit().algorithm().is_bucket();
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    for first in ALGORITHMS {
        for second in ALGORITHMS.into_iter().filter(|second| *second != first) {
            wire.clear();
            let store = ScriptStore::on_clock(&wire, clock());
            let (first, second) = (band(first), band(second));
            // The two buckets are one counter.
            let then = match is_bucket(&first) && is_bucket(&second) {
                true => [7, 6],
                false => [9, 8],
            };
            for (band, left) in [
                (&first, 9),
                (&first, 8),
                (&second, then[0]),
                (&second, then[1]),
            ] {
                let verdicts = ready(store.decide(&checks("ours", band))).unwrap();
                assert_eq!(verdicts[0].remaining, left);
            }
        }
    }
}

/// A server whose replies are mutated.
struct Bent<'w> {
    wire: &'w Wire,
    how: Mutex<Option<(Bend, prop::sample::Index, u8)>>,
}

#[derive(Clone, Copy, Debug)]
enum Bend {
    Change,
    Cut,
    Insert,
    Remove,
    Append,
}

impl Server for &Bent<'_> {
    fn eval(
        &self,
        script: &str,
        sha1: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Vec<u8>, StoreError> {
        let mut reply = self.wire.eval(script, sha1, keys, args)?;
        if let Some((bend, index, byte)) = *self.how.lock().unwrap() {
            let at = index.index(reply.len());
            match bend {
                Bend::Change => reply[at] ^= byte.max(1),
                Bend::Cut => reply.truncate(at),
                Bend::Insert => reply.insert(at, byte),
                Bend::Remove => drop(reply.remove(at)),
                Bend::Append => reply.push(byte),
            }
        }
        Ok(reply)
    }

    fn unlink(&self, keys: &[Vec<u8>]) -> Result<u64, StoreError> {
        self.wire.unlink(keys)
    }

    fn scan(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        self.wire.scan(pattern)
    }
}

/// A reply with any byte changed is an answer or an error, never a panic; a
/// shorter or longer one is always an error.
#[test]
fn a_mutated_reply_is_an_error_or_an_answer() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let config = Config {
        cases: crate::support::cases(1_500),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(5),
        ..Config::default()
    };
    let bends = [
        Bend::Change,
        Bend::Cut,
        Bend::Insert,
        Bend::Remove,
        Bend::Append,
    ];
    let how = (
        prop::sample::select(bends.to_vec()),
        any::<prop::sample::Index>(),
        any::<u8>(),
    );
    let rules = prop::collection::vec(all_numbers(), 1..4);
    let costs = prop::collection::vec(0..5_u64, 1..5);
    proptest!(config, |(rules in rules, costs in costs, how in how)| {
        wire.clear();
        let bent = Bent { wire: &wire, how: Mutex::new(None) };
        let clock = clock();
        let store = ScriptStore::on_clock(&bent, clock.clone());
        let names = ["b0", "b1", "b2"];
        let bands = names.iter().zip(&rules);
        let bands: Vec<_> = bands.map(|(id, numbers)| Band::new(*id, numbers.limit())).collect();
        let mut checks = Vec::new();
        for cost in costs {
            let mut one = Checks::new(Mode::Take);
            one.push(subject("s"), &bands, cost, Group::ENFORCED);
            one.push(subject("t"), &bands, cost, Group::shadow(0));
            checks.push(one);
        }
        let batch: Vec<_> = checks.iter().collect();
        store.decide_all(&batch).unwrap();
        *bent.how.lock().unwrap() = Some(how);
        match store.decide_all(&batch) {
            Ok(verdicts) => {
                let reasons = verdicts.iter().filter_map(|verdicts| verdicts.as_ref().err());
                for error in reasons {
                    let is_told = matches!(error.reason, Reason::BAD_RESPONSE | reason::BAD_TYPES);
                    prop_assert!(is_told);
                }
                prop_assert!(!matches!(how.0, Bend::Cut | Bend::Append));
            }
            Err(error) => prop_assert_eq!(error.reason, Reason::BAD_RESPONSE),
        }
    });
}
