//! Invariants of the limits. These tests know neither the implementation nor the
//! model.

use fluxgate_core::Algorithm;
use proptest::prelude::*;

use crate::support::{
    ALGORITHMS, Gate, MILLI, SECOND, START, cases, fields, global, name_of, retry,
};

/// A limit with odd numbers.
#[derive(Clone, Debug)]
struct Odd {
    algorithm: Algorithm,
    capacity: u64,
    window: u64,
    refill: u64,
    period: u64,
}

impl Odd {
    fn rule(&self, rest: &str) -> String {
        let (algorithm, capacity) = (name_of(self.algorithm), self.capacity);
        let window = self.window / MILLI;
        let rate = if self.algorithm.is_bucket() {
            format!(
                ", refill: {}, period: {}ms",
                self.refill,
                self.period / MILLI
            )
        } else {
            String::new()
        };
        global(&format!(
            "algorithm: {algorithm}, {rest} bands: [{{ capacity: {capacity}, window: {window}ms{rate} }}]"
        ))
    }

    fn gate(&self) -> Gate {
        Gate::new(&self.rule(""))
    }

    /// Returns the time of these units, rounded up.
    fn time_of(&self, units: u64) -> u64 {
        (units * self.period).div_ceil(self.refill)
    }

    /// C·P/R of a bucket, W of the others.
    fn horizon(&self) -> u64 {
        if self.algorithm.is_bucket() {
            self.time_of(self.capacity)
        } else {
            self.window
        }
    }
}

fn odd(algorithms: &'static [Algorithm]) -> impl Strategy<Value = Odd> {
    let algorithm = prop::sample::select(algorithms);
    let numbers = (1..=60_u64, 1..=3_000_u64, 1..=97_u64, 1..=3_000_u64);
    (algorithm, numbers).prop_map(|(algorithm, (capacity, window, refill, period))| Odd {
        algorithm,
        capacity,
        window: window * MILLI,
        refill,
        period: period * MILLI,
    })
}

/// Pauses and costs. A pause is in thousandths of the time in which the whole limit
/// returns; many are zero.
fn traffic() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![3 => Just(0), 3 => 0..100_u64, 1 => 0..1_500_u64];
    let cost = prop_oneof![3 => Just(1), 1 => 0..=20_u64];
    prop::collection::vec((pause, cost), 1..120)
}

const BUCKETS: &[Algorithm] = &[Algorithm::TokenBucket, Algorithm::LeakyBucket];

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn no_span_admits_more_than_a_bucket_and_its_refill(odd in odd(BUCKETS), traffic in traffic()) {
        let admitted = admitted(&odd, &traffic);
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (at, cost) in &admitted[first..] {
                sum += cost;
                // sum ≤ C + R·t/P
                let most = odd.capacity * odd.period + odd.refill * (at - from);
                prop_assert!(sum * odd.period <= most, "{sum} from {from} to {at}");
            }
        }
    }

    #[test]
    fn no_sliding_span_admits_more_than_a_log_holds(
        odd in odd(&[Algorithm::SlidingLog]), traffic in traffic()
    ) {
        let admitted = admitted(&odd, &traffic);
        for (first, (from, _)) in admitted.iter().enumerate() {
            let span = admitted[first..].iter().take_while(|(at, _)| at - from < odd.window);
            prop_assert!(span.map(|(_, cost)| cost).sum::<u64>() <= odd.capacity);
        }
    }

    #[test]
    fn no_aligned_window_admits_more_than_its_limit(
        odd in odd(&[Algorithm::FixedWindow, Algorithm::SlidingWindow]), traffic in traffic()
    ) {
        let admitted = admitted(&odd, &traffic);
        for window in admitted.chunk_by(|a, b| a.0 / odd.window == b.0 / odd.window) {
            prop_assert!(window.iter().map(|(_, cost)| cost).sum::<u64>() <= odd.capacity);
        }
    }

    #[test]
    fn waiting_keeps_the_rate_too(
        odd in odd(BUCKETS), traffic in traffic(), max_wait in 1..=5_000_u64
    ) {
        let gate = Gate::new(&odd.rule(&format!("on_exceed: wait, max_wait: {max_wait}ms,")));
        let mut served = Vec::new();
        let mut now = START;
        for (pause, cost) in traffic {
            now += odd.horizon() * pause / 1000;
            let decision = gate.at(now).take(cost);
            if decision.allowed() {
                prop_assert!(decision.delay_micros().get() <= max_wait * MILLI);
                served.push((now + decision.delay_micros().get(), cost));
            }
        }
        prop_assert!(served.is_sorted_by_key(|(at, _)| *at), "waiters are served in order");
        for (first, (from, _)) in served.iter().enumerate() {
            let mut sum = 0;
            for (at, cost) in &served[first..] {
                sum += cost;
                // Delays are whole microseconds, so a span may seem one too short.
                let most = odd.capacity * odd.period + odd.refill * (at - from + 1);
                prop_assert!(sum * odd.period <= most, "{sum} from {from} to {at}");
            }
        }
    }

    #[test]
    fn an_empty_bucket_admits_at_its_exact_rate(
        mut odd in odd(BUCKETS), costs in prop::collection::vec(1..=5_u64, 1..60)
    ) {
        // More than any cost, or the bucket would be full, and lose time, when one is due.
        odd.capacity += 5;
        let gate = odd.gate();
        prop_assert!(gate.at(START).take(odd.capacity).allowed());
        // Every unit since then has refilled to the fraction: it is there at the first
        // whole microsecond after, and not at the last one before.
        let mut units = 0;
        for cost in costs {
            units += cost;
            let due = START + odd.time_of(units);
            prop_assert!(!gate.at(due - 1).take(cost).allowed());
            prop_assert!(gate.at(due).take(cost).allowed());
        }
    }

    #[test]
    fn a_client_that_keeps_to_its_rate_is_never_denied(
        odd in odd(&[
            Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::FixedWindow,
            Algorithm::SlidingLog,
        ]),
        phase in 0..SECOND,
        lags in prop::collection::vec(0..500_u64, 150),
    ) {
        let gate = odd.gate();
        let pause = if odd.algorithm.is_bucket() {
            odd.time_of(1)
        } else {
            odd.window.div_ceil(odd.capacity)
        };
        let mut now = START + phase;
        for lag in lags {
            prop_assert!(gate.at(now).take(1).allowed(), "at {now}");
            // Most lags are zero.
            now += pause + lag.saturating_sub(400);
        }
    }

    #[test]
    fn a_peek_changes_nothing(odd in odd(&ALGORITHMS), traffic in traffic(), looks in traffic()) {
        let (watched, alone) = (odd.gate(), odd.gate());
        let mut now = START;
        for ((pause, cost), (_, look)) in traffic.iter().zip(looks.iter().cycle()) {
            now += odd.horizon() * pause / 1000;
            let _ = watched.at(now).peek_units(*look);
            watched.state(&[]);
            prop_assert_eq!(fields(&watched.take(*cost)), fields(&alone.at(now).take(*cost)));
        }
    }

    #[test]
    fn a_denial_changes_nothing(odd in odd(&ALGORITHMS), traffic in traffic()) {
        let (pestered, alone) = (odd.gate(), odd.gate());
        let mut now = START;
        for (pause, cost) in traffic {
            now += odd.horizon() * pause / 1000;
            pestered.at(now);
            alone.at(now);
            for more in [0, 1, odd.capacity, odd.capacity + 1] {
                if !pestered.peek_units(more).allowed() {
                    prop_assert!(!pestered.take(more).allowed());
                }
            }
            prop_assert_eq!(fields(&pestered.take(cost)), fields(&alone.take(cost)));
        }
    }

    #[test]
    fn reported_times_are_exact(odd in odd(&ALGORITHMS), traffic in traffic()) {
        let gate = odd.gate();
        let mut now = START;
        for (pause, cost) in traffic {
            now += odd.horizon() * pause / 1000;
            let decision = gate.at(now).take(cost);
            match retry(&decision) {
                None => prop_assert!(cost > odd.capacity),
                Some(0) => prop_assert!(decision.allowed()),
                Some(wait) => {
                    prop_assert!(!gate.at(now + wait - 1).peek_units(cost).allowed());
                    prop_assert!(gate.at(now + wait).peek_units(cost).allowed());
                }
            }
            let reset = decision.reset_micros().get();
            let left = |at| gate.at(at).left(&[])[0];
            prop_assert_eq!(left(now + reset), odd.capacity);
            prop_assert!(reset == 0 || left(now + reset - 1) < odd.capacity);
            prop_assert_eq!(Some(left(now)), decision.remaining());
        }
    }

    #[test]
    fn refunded_units_count_as_never_taken(
        odd in odd(&ALGORITHMS), traffic in traffic(), taken in prop::collection::vec(0..=30_u64, 1..9)
    ) {
        let (refunded, alone) = (odd.gate(), odd.gate());
        let mut now = START;
        for ((pause, cost), units) in traffic.iter().zip(taken.iter().cycle()) {
            now += odd.horizon() * pause / 1000;
            if refunded.at(now).take(*units).allowed() {
                refunded.refund(&[], *units);
            }
            prop_assert_eq!(fields(&refunded.take(*cost)), fields(&alone.at(now).take(*cost)));
        }
    }
}

/// Returns the requests that pass, with their times.
fn admitted(odd: &Odd, traffic: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let gate = odd.gate();
    let mut now = START;
    let mut admitted = Vec::new();
    for (pause, cost) in traffic {
        now += odd.horizon() * pause / 1000;
        if gate.at(now).take(*cost).allowed() {
            admitted.push((now, *cost));
        }
    }
    admitted
}
