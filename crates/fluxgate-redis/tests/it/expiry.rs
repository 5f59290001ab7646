//! Keys expire once their state has no effect any more, and not before: the
//! production script, by the server's clock.

use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::store::{Checks, Group, Mode, Subject, Verdict};
use fluxgate_core::task::ready;
use fluxgate_core::{Algorithm, Band, Limit, ManualClock, Store, Timestamp};
use fluxgate_redis::injected_time::{ScriptStore, Server};
use fluxgate_testkit::{RedisServer, Skew};

use crate::wire::Wire;

const SUBJECT: Subject<'static> = Subject {
    rule: RuleNumber::NONE,
    bytes: b"somebody",
};
const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
];

fn band(algorithm: Algorithm, capacity: u64, window: Duration) -> Band {
    let limit = Limit::builder(algorithm, capacity, window);
    Band::new("b", limit.build().unwrap())
}

fn checks(band: &Band, cost: u64, mode: Mode) -> Checks<'_> {
    let mut checks = Checks::new(mode);
    checks.push(SUBJECT, std::slice::from_ref(band), cost, Group::ENFORCED);
    checks
}

fn take(store: &ScriptStore<&Wire>, band: &Band, cost: u64) -> Verdict {
    ready(store.decide(&checks(band, cost, Mode::Take))).unwrap()[0]
}

/// A server whose clock can be set forward, so that tests need not wait.
struct Ahead {
    server: RedisServer,
    by: Duration,
}

impl Ahead {
    fn start() -> Self {
        Self {
            server: RedisServer::builder().clock_offset(Skew::NONE).start(),
            by: Duration::ZERO,
        }
    }

    fn advance_clock(&mut self, span: Duration) {
        self.by += span;
        self.server.set_clock_offset(Skew::Ahead(self.by));
    }
}

/// Returns the server's time, in µs.
fn time(wire: &Wire) -> u64 {
    let (seconds, micros): (u64, u64) = wire.run(&redis::cmd("TIME"));
    seconds * 1_000_000 + micros
}

fn left_ms(wire: &Wire, key: &[u8]) -> i64 {
    wire.run(redis::cmd("PTTL").arg(key))
}

#[test]
fn a_key_lives_as_long_as_its_state_matters() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let store = ScriptStore::on_server_time(&wire);
    for algorithm in ALGORITHMS {
        for window in [7, 40, 333, 1_000, 86_400_000, 30 * 86_400_000] {
            // An odd capacity, so that buckets have fractions.
            for capacity in [1, 10, 37] {
                wire.clear();
                let band = band(algorithm, capacity, Duration::from_millis(window));
                let key = &store.keys(SUBJECT, std::slice::from_ref(&band))[0];
                let before = time(&wire);
                let reset = take(&store, &band, 1).reset_after.get();
                let left = left_ms(&wire, key);
                let after = time(&wire);
                // The script read the clock between the two readings of the test.
                let latest = (after + reset).div_ceil(1_000) - before / 1_000;
                let earliest = (before + reset).saturating_sub(after) / 1_000;
                if left < 0 {
                    assert!(earliest == 0, "{algorithm:?} {window} {capacity}: {left}");
                } else {
                    let left = left as u64;
                    assert!(
                        (earliest..=latest).contains(&left),
                        "{algorithm:?} {window} {capacity}: {left} not in {earliest}..={latest}"
                    );
                }
            }
        }
    }
}

#[test]
fn keys_expire_when_their_windows_have_passed_and_not_before() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let store = ScriptStore::on_server_time(&wire);
    for algorithm in ALGORITHMS {
        for window in [20, 55] {
            let band = band(algorithm, 3, Duration::from_millis(window));
            for cost in [1, 3] {
                let before = time(&wire);
                let verdict = take(&store, &band, cost);
                if !verdict.passes() {
                    continue;
                }
                // The script read the clock between the two readings of the test.
                let ends = before + verdict.reset_after.get();
                let latest = time(&wire) + verdict.reset_after.get();
                loop {
                    let looked = time(&wire);
                    if (&wire).scan(b"*").unwrap().is_empty() {
                        break;
                    }
                    assert!(looked < latest + 500_000, "{algorithm:?} {window}");
                }
                let gone = time(&wire);
                assert!(gone >= ends, "{algorithm:?} {window}: {} us", ends - gone);
            }
        }
    }
    assert!((&wire).scan(b"*").unwrap().is_empty());
}

#[test]
fn a_second_charge_extends_the_ttl() {
    let mut ahead = Ahead::start();
    let wire = Wire::to(&ahead.server);
    let store = ScriptStore::on_server_time(&wire);
    for algorithm in ALGORITHMS {
        let band = band(algorithm, 10, Duration::from_secs(1_000));
        let key = &store.keys(SUBJECT, std::slice::from_ref(&band))[0];
        wire.clear();
        take(&store, &band, 1);
        ahead.advance_clock(Duration::from_millis(50));
        let before = time(&wire);
        let reset = take(&store, &band, 1).reset_after.get();
        let left = left_ms(&wire, key);
        let gone = time(&wire) - before;
        assert!(1_000 * left + gone as i64 >= reset as i64, "{algorithm:?}");
    }
}

#[test]
fn a_refund_shortens_the_ttl_or_deletes_the_key() {
    let mut ahead = Ahead::start();
    let wire = Wire::to(&ahead.server);
    let store = ScriptStore::on_server_time(&wire);
    for algorithm in ALGORITHMS {
        let band = band(algorithm, 10, Duration::from_secs(300 * 86_400));
        let bands = std::slice::from_ref(&band);
        let key = &store.keys(SUBJECT, bands)[0];
        take(&store, &band, 4);
        ahead.advance_clock(Duration::from_millis(5));
        take(&store, &band, 5);
        let state = ready(store.refund(SUBJECT, bands, 5)).unwrap()[0];
        assert_eq!(state.remaining, 6, "{algorithm:?}");
        let reset_ms = state.reset_after.ceil_millis() as i64;
        let left = left_ms(&wire, key);
        assert!((reset_ms - 10_000..=reset_ms + 1).contains(&left));
        ready(store.refund(SUBJECT, bands, 4)).unwrap();
        assert_eq!(wire.keys(), 0, "{algorithm:?}");
    }
}

#[test]
fn a_log_without_live_events_after_a_refund_is_deleted() {
    let mut ahead = Ahead::start();
    let wire = Wire::to(&ahead.server);
    let store = ScriptStore::on_server_time(&wire);
    let band = band(Algorithm::SlidingLog, 10, Duration::from_millis(100));
    let bands = std::slice::from_ref(&band);
    take(&store, &band, 1);
    ahead.advance_clock(Duration::from_millis(70));
    take(&store, &band, 1);
    ahead.advance_clock(Duration::from_millis(50));
    // The first event has left the window, the second one is refunded.
    let state = ready(store.refund(SUBJECT, bands, 1)).unwrap()[0];
    assert_eq!((state.remaining, state.reset_after.get()), (10, 0));
    assert_eq!(wire.keys(), 0);
    assert_eq!(take(&store, &band, 1).remaining, 9);
}

/// The clock of the server goes back; simulated by a state that is ahead.
#[test]
fn a_correction_has_its_own_ttl_even_on_a_denial() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let now = time(&wire);
    let store = ScriptStore::on_server_time(&wire);
    for algorithm in ALGORITHMS {
        wire.clear();
        let ahead = ManualClock::new(Timestamp::from_micros(now + 86_400_000_000).unwrap());
        let in_a_day = ScriptStore::on_clock(&wire, ahead);
        let band = band(algorithm, 10, Duration::from_secs(60));
        let charge = checks(&band, 10, Mode::Take);
        assert!(ready(in_a_day.decide(&charge)).unwrap()[0].passes());
        let key = &store.keys(SUBJECT, std::slice::from_ref(&band))[0];
        assert!(left_ms(&wire, key) > 1_000_000_000, "that clock keeps it");
        let denied = take(&store, &band, 1);
        assert!(!denied.passes(), "{algorithm:?}");
        let left = left_ms(&wire, key);
        // Two windows, or the horizon of a bucket: 2^27 µs from twice a minute on.
        assert!((0..=134_219).contains(&left), "{algorithm:?}: {left}");
    }
}

/// A client cannot inject the time: the script ignores further arguments.
#[test]
fn the_production_script_uses_only_the_server_clock() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    // It sends a time of 0 after the checks.
    let store = ScriptStore::on_server_time(&wire);
    let band = band(Algorithm::TokenBucket, 10, Duration::from_secs(3_600));
    let before = time(&wire);
    take(&store, &band, 10);
    let key = &store.keys(SUBJECT, std::slice::from_ref(&band))[0];
    let state: String = wire.run(redis::cmd("GET").arg(key));
    let full_at: u64 = state[..16].parse().unwrap();
    let charged_at = full_at - 3_600_000_000;
    assert!((before..=time(&wire)).contains(&charged_at));
}
