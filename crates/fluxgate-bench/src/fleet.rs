//! A thousand instances with leases on virtual time, compared with one call a decision.
//!
//! It prints a table, because a fleet has several figures. Virtual time does not depend on
//! the machine, and neither do the figures.

use std::sync::Mutex;
use std::time::Duration;

use fluxgate_core::{Algorithm, Lease, Limit, Percent};
use fluxgate_sim::fleet::{
    Churn, Fault, FleetConfig, FleetOutcome, FleetRule, Network, Traffic, run,
};

use crate::report::{Better, Report};

const INSTANCES: u32 = 1_000;
const KEYS: u32 = 1_000_000;
/// Units per second of each key. By Zipf's law, the first key gets more than three times as
/// many requests.
const LIMIT: u64 = 10_000;
/// The time between two requests, in microseconds: each instance gets 500 a second.
const GAP: u64 = 2;
const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// What differs between the fleets.
#[derive(Clone, Copy)]
struct Case {
    /// The share of the limit that is leased, in percent.
    share: u8,
    /// The span of a lease, in milliseconds.
    millis: u64,
    /// The number of instances that get the requests of one key.
    homes: u32,
}

const CASES: [Case; 6] = [
    case(20, 100, 4),
    case(20, 1_000, 4),
    case(20, 10_000, 4),
    case(10, 1_000, 4),
    case(50, 1_000, 4),
    case(20, 1_000, INSTANCES),
];

const fn case(share: u8, millis: u64, homes: u32) -> Case {
    Case {
        share,
        millis,
        homes,
    }
}

pub(crate) fn run_all(report: &mut Report) {
    if !report.is_json() {
        println!(
            "share     for  homes  decisions  calls/decision  calls saved  quota unused  \
             overshoot  virtual time"
        );
    }
    // The longest runs come first.
    let mut order: Vec<_> = (0..CASES.len()).collect();
    order.sort_by_key(|at| CASES[*at].millis);
    let (order, outcomes) = (Mutex::new(order), Mutex::new([FleetOutcome::default(); 6]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(at) = next(&order) {
                    let outcome = run(&config(CASES[at]));
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes[at] = outcome;
                    }
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().into_iter().flatten();
    for (case, outcome) in CASES.into_iter().zip(outcomes) {
        print(report, case, &outcome);
    }
}

fn next(order: &Mutex<Vec<usize>>) -> Option<usize> {
    order.lock().ok()?.pop()
}

fn print(report: &mut Report, case: Case, outcome: &FleetOutcome) {
    let Case {
        share,
        millis,
        homes,
    } = case;
    let seconds = config(case).duration / SECOND;
    let FleetOutcome {
        decisions,
        overshoot,
        ..
    } = *outcome;
    let calls = outcome.calls as f64 / decisions as f64;
    let unused = 1.0 - outcome.admitted as f64 / outcome.possible as f64;
    if report.is_json() {
        let name = format!("fleet-{share}-percent-{millis}-ms-{homes}-homes");
        let figures = (1_000.0 * calls, 1_000.0);
        let yardstick = "one call a decision";
        report.line(&name, figures, yardstick, "calls/1000", Better::Less);
    } else {
        println!(
            "{share:>4}% {millis:>5}ms {homes:>6} {decisions:>10} {calls:>15.4} {:>11.1}% \
             {:>12.2}% {overshoot:>10} {seconds:>11} s",
            100.0 * (1.0 - calls),
            100.0 * unused,
        );
    }
    assert!(decisions > 0 && overshoot == 0, "{outcome:?}");
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn config(case: Case) -> FleetConfig {
    let limit = Limit::builder(Algorithm::TokenBucket, LIMIT, Duration::from_secs(1));
    let lease = Lease::new(Percent::new(case.share), Duration::from_millis(case.millis));
    let rule = FleetRule::new(&[limit.build().unwrap()], lease, false).unwrap();
    FleetConfig {
        seed: 42,
        // At least two lives.
        duration: (2 * case.millis * MILLISECOND).max(4 * SECOND),
        instances: INSTANCES,
        rules: vec![rule],
        traffic: Traffic {
            mean_gap: GAP,
            keys: KEYS,
            zipf: true,
            instances_per_key: case.homes,
            most_cost: 1,
            burst: 0,
            most_burst: 0,
            flood: 0,
            pause: 0,
            longest_pause: 0,
        },
        network: Network {
            fastest: 100,
            slowest: MILLISECOND,
            lost: 1,
            late: 10,
            latest: 100 * MILLISECOND,
            deadline: 50 * MILLISECOND,
        },
        churn: Churn {
            crash: 100 * MILLISECOND,
            shutdown: 100 * MILLISECOND,
            down: SECOND,
        },
        drift: 5_000,
        data_loss: 0,
        fault: Fault::None,
    }
}
