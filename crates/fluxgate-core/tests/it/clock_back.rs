//! A clock that goes back never admits more, and its effects heal.

use fluxgate_core::Algorithm;
use proptest::prelude::*;

use crate::support::{
    ALGORITHMS, Gate, HOUR, MILLI, MINUTE, SECOND, START, cases, global, name_of,
};

const CAPACITY: u64 = 10;
const WINDOW: u64 = 7 * SECOND;

fn gate(algorithm: Algorithm) -> Gate {
    let (algorithm, window) = (name_of(algorithm), WINDOW / MILLI);
    Gate::new(&global(&format!(
        "algorithm: {algorithm}, bands: [{{ capacity: {CAPACITY}, window: {window}ms }}]"
    )))
}

/// Returns how long the whole quota may take to return once the clock is far behind the
/// state: the rest of the current window (of both counts for the sliding window), and
/// for a bucket its horizon, the least power of two that is not less than twice the time
/// to fill.
fn healing_time(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::SlidingWindow => 2 * WINDOW,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => (2 * WINDOW).next_power_of_two(),
        _ => WINDOW,
    }
}

#[test]
fn a_used_up_limit_stays_used_up_when_the_clock_goes_back() {
    for algorithm in ALGORITHMS {
        for back in [1, MILLI, SECOND, WINDOW, WINDOW + 1, MINUTE, HOUR] {
            let gate = gate(algorithm);
            let now = START + 3 * SECOND;
            assert!(gate.at(now).take(CAPACITY).allowed());
            let decision = gate.at(now - back).take(1);
            assert!(!decision.allowed(), "{algorithm:?} {back}");
            assert_eq!(decision.remaining(), Some(0));
            // A bucket then owes more than it holds, and denies even a cost of zero.
            assert_eq!(
                gate.at(now - back).peek_units(0).allowed(),
                !algorithm.is_bucket(),
                "{algorithm:?} {back}"
            );
        }
    }
}

#[test]
fn an_hour_back_heals() {
    for algorithm in ALGORITHMS {
        let gate = gate(algorithm);
        let now = START + 3 * SECOND;
        assert!(gate.at(now).take(CAPACITY).allowed());
        let back = now - HOUR;
        let decision = gate.at(back).take(1);
        assert!(!decision.allowed());
        let reset = decision.reset_micros().get();
        assert!(reset <= healing_time(algorithm), "{algorithm:?} {reset}");
        // The denial wrote the correction, so it does not start again.
        assert!(
            gate.at(back + reset).take(CAPACITY).allowed(),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_small_step_back_heals_once_the_clock_catches_up() {
    for algorithm in ALGORITHMS {
        let gate = gate(algorithm);
        let now = START + 3 * SECOND;
        let reset = gate.at(now).take(CAPACITY).reset_micros().get();
        // Denials in between correct nothing: the reported time holds.
        assert!(!gate.at(now - SECOND).take(1).allowed());
        assert!(
            gate.at(now + reset).take(CAPACITY).allowed(),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_peek_writes_the_correction_too() {
    for algorithm in ALGORITHMS {
        let gate = gate(algorithm);
        let _ = gate.at(START).take(CAPACITY);
        let back = START - HOUR;
        let looked = gate.at(back).peek_units(1).reset_micros().get();
        // If the peek did not write, the state would be corrected only now, and a
        // whole window more would have to pass.
        assert!(
            gate.at(back + looked).take(CAPACITY).allowed(),
            "{algorithm:?}"
        );
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_request_denied_before_the_step_is_denied_after_it(
        algorithm in prop::sample::select(&ALGORITHMS[..]),
        traffic in prop::collection::vec((0..3 * SECOND, 0..4_u64), 1..40),
        back in prop_oneof![0..2 * WINDOW, Just(HOUR)],
        cost in 0..=CAPACITY,
    ) {
        let gate = gate(algorithm);
        let mut now = START;
        for (pause, cost) in traffic {
            now += pause;
            let _ = gate.at(now).take(cost);
        }
        let before = gate.at(now).peek_units(cost).allowed();
        let after = gate.at(now - back).peek_units(cost).allowed();
        // A sliding window that is moved back weighs its two counts again.
        let moves = algorithm == Algorithm::SlidingWindow && back > WINDOW;
        prop_assert!(before || !after || moves);
    }

    /// Counting only the time by which the clock moves forward, a clock that jumps back
    /// and forth by an hour admits no more than one that runs.
    #[test]
    fn an_hour_back_and_forth_admits_no_more(
        algorithm in prop::sample::select(&[
            Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::SlidingLog,
        ][..]),
        traffic in prop::collection::vec((0..2 * SECOND, 0..4_u64, 0..20_u8), 1..150),
    ) {
        let gate = gate(algorithm);
        let (mut now, mut forward, mut is_back) = (START, 0, false);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (pause, cost, jump) in traffic {
            now += pause;
            forward += pause;
            match (jump, is_back) {
                (0, false) => (now, is_back) = (now - HOUR, true),
                (0, true) => (now, forward, is_back) = (now + HOUR, forward + HOUR, false),
                _ => {}
            }
            if gate.at(now).take(cost).allowed() {
                admitted.push((forward, cost));
            }
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (at, cost) in &admitted[first..] {
                sum += cost;
                if algorithm == Algorithm::SlidingLog {
                    prop_assert!(sum <= CAPACITY || at - from >= WINDOW);
                } else {
                    prop_assert!(sum * WINDOW <= CAPACITY * (WINDOW + at - from));
                }
            }
        }
    }
}
