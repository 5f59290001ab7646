//! Random fleets, and the load that leases are for.

use std::time::Duration;

use fluxgate_core::{Algorithm, Lease, Limit, LimitBuilder, Percent};

use super::{Churn, Fault, FleetConfig, FleetOutcome, FleetRule, Network, Traffic, run};
use crate::random::Random;

/// Clocks differ from the true time by at most half a percent.
const DRIFT: u32 = 5_000;

/// Returns whether this is a long test run.
pub(super) fn is_long() -> bool {
    std::env::var_os("FLUXGATE_LONG").is_some()
}

/// The demand for one key, in units per second.
struct Load(u64);

/// Returns a limit that admits from half of the load to eight times as much.
fn limit(algorithm: Algorithm, load: &Load, random: &mut Random) -> Limit {
    let capacity = random.between(2, 60);
    let per_second = (load.0 * random.between(1, 16) / 2).max(1);
    // Until as many units are admitted as the limit has at once.
    let window = Duration::from_millis((capacity * 1_000 / per_second).max(1));
    let mut limit = Limit::builder(algorithm, capacity, window);
    if algorithm != Algorithm::FixedWindow {
        let period = random.between(1, 500);
        let refill = (per_second * period / 1_000).max(1);
        limit = limit.refill(refill).period(Duration::from_millis(period));
    }
    limit.build().unwrap()
}

fn rule(life: u64, load: &Load, random: &mut Random) -> FleetRule {
    // At most 50.
    let share = Percent::new(random.between(10, 50) as u8);
    let lease = Lease::new(share, Duration::from_millis(life));
    let algorithm = match random.below(3) {
        0 => Algorithm::TokenBucket,
        1 => Algorithm::LeakyBucket,
        _ => Algorithm::FixedWindow,
    };
    let bands = if random.below(4) == 0 { 2 } else { 1 };
    let limits: Vec<_> = (0..bands).map(|_| limit(algorithm, load, random)).collect();
    FleetRule::new(&limits, lease, random.below(4) == 0).unwrap()
}

/// Returns a fleet in which much goes wrong.
fn random_config(seed: u64) -> FleetConfig {
    let mut random = Random::new(seed);
    let millis = match random.below(3) {
        0 => random.between(100, 200),
        1 => random.between(200, 400),
        _ => random.between(400, 1_000),
    };
    let life = 1_000 * millis;
    let (instances, keys) = (random.between(1, 5), random.between(1, 3));
    let most_cost = random.between(1, 5);
    let gap = (life / random.between(5, 60) / instances / keys).max(1);
    let load = Load(1_000_000 / gap / keys * (1 + most_cost) / 2);
    let mut rules = vec![rule(millis, &load, &mut random)];
    if random.below(4) == 0 {
        let millis = random.between(100, 1_000);
        rules.push(rule(millis, &load, &mut random));
    }
    let [crash, shutdown] = [(); 2].map(|()| match random.below(2) {
        0 => 0,
        _ => random.between(life, 8 * life),
    });
    // None, some or many calls fail.
    let often = random.below(3);
    FleetConfig {
        seed,
        duration: (1_000 * gap).clamp(4 * life, 20 * life),
        // All these are small.
        instances: instances as u32,
        traffic: Traffic {
            mean_gap: gap,
            keys: keys as u32,
            zipf: random.below(2) == 0,
            instances_per_key: 0,
            most_cost,
            burst: random.between(0, 100) as u32,
            most_burst: random.between(1, 40),
            flood: random.between(life / 4, 4 * life),
            pause: random.between(0, 50) as u32,
            longest_pause: random.between(1, 2 * life),
        },
        network: Network {
            fastest: 10,
            slowest: random.between(20, life / 20),
            lost: (often * random.below(500)) as u32,
            late: (often * random.below(500)) as u32,
            latest: random.between(20, 2 * life),
            deadline: random.between(life / 10, life),
        },
        churn: Churn {
            crash,
            shutdown,
            down: random.between(1, life),
        },
        drift: DRIFT,
        data_loss: 0,
        fault: Fault::None,
        rules,
    }
}

#[test]
fn random_fleets_never_exceed_a_limit() {
    let schedules = if is_long() { 5_000 } else { 300 };
    let (mut decisions, mut local) = (0, 0);
    for seed in 0..schedules {
        let config = random_config(seed);
        let outcome = run(&config);
        assert_eq!(outcome.overshoot, 0, "{config:#?}\n{outcome:#?}");
        decisions += outcome.decisions;
        local += outcome.local;
    }
    // Otherwise there was nothing to exceed a limit by.
    assert!(local > decisions / 10, "{local} of {decisions}");
}

/// After a loss, the shared part is full again, or a window starts at zero. Units that were out
/// are still spent or returned.
#[test]
fn each_loss_of_data_admits_at_most_one_more_quota() {
    let (mut losses, mut over) = (0, 0);
    for seed in 0..if is_long() { 2_000 } else { 150 } {
        let mut config = random_config(seed);
        config.data_loss = config.duration / 2;
        let outcome = run(&config);
        let bands = config.rules.iter().flat_map(|rule| &rule.bands);
        let quota = bands.map(|band| band.capacity()).max().unwrap();
        let most = quota * outcome.data_losses;
        assert!(outcome.overshoot <= most, "{config:#?}\n{outcome:#?}");
        losses += outcome.data_losses;
        over += u64::from(outcome.overshoot > 0);
    }
    // Otherwise nothing was lost.
    assert!(losses > 100 && over > 20, "{losses} losses, {over} over");
}

/// Each table hashes its keys in another way, so with several counters two may share an entry
/// among the hot keys: once in a thousand runs.
#[test]
fn equal_configs_give_equal_outcomes() {
    let has_one_counter = |config: &FleetConfig| {
        let bands: usize = config.rules.iter().map(|rule| rule.bands.len()).sum();
        bands == 1 && config.traffic.keys == 1
    };
    for config in (0..200).map(random_config).filter(has_one_counter) {
        assert_eq!(run(&config), run(&config), "{config:#?}");
    }
}

/// The oracle notices a server that breaks what the limit rests on, and clocks that differ
/// by more than a lease allows for.
#[test]
fn a_broken_fleet_exceeds_its_limits() {
    for (fault, drift, is_bucket) in [
        (Fault::ForgetsOutstanding, DRIFT, true),
        (Fault::SharesAll, DRIFT, true),
        (Fault::None, 500_000, false),
    ] {
        let exceeds = |seed: u64| {
            let config = FleetConfig {
                fault,
                drift,
                ..random_config(seed)
            };
            let mut bands = config.rules.iter().flat_map(|rule| &rule.bands);
            bands.all(|band| band.algorithm().is_bucket() == is_bucket)
                && run(&config).overshoot > 0
        };
        assert!((0..300).any(exceeds), "{fault:?}, {drift}");
    }
}

/// Three instances that get requests of one key without anything going wrong.
fn steady(limit: LimitBuilder, lease: Lease, mean_gap: u64) -> FleetConfig {
    let rule = FleetRule::new(&[limit.build().unwrap()], lease, false).unwrap();
    FleetConfig {
        seed: 1,
        duration: 20_000_000,
        instances: 3,
        rules: vec![rule],
        traffic: Traffic {
            mean_gap,
            keys: 1,
            zipf: false,
            instances_per_key: 0,
            most_cost: 1,
            burst: 0,
            most_burst: 0,
            flood: 0,
            pause: 0,
            longest_pause: 0,
        },
        network: Network {
            fastest: 50,
            slowest: 500,
            lost: 0,
            late: 0,
            latest: 0,
            deadline: 50_000,
        },
        churn: Churn {
            crash: 0,
            shutdown: 0,
            down: 1,
        },
        drift: DRIFT,
        data_loss: 0,
        fault: Fault::None,
    }
}

/// Expects that a fleet exceeds nothing, uses at least 95% of what is possible, and makes at
/// most one call for `decisions` decisions.
fn expect_few_calls(outcome: &FleetOutcome, decisions: u64, name: &str) {
    let used = outcome.admitted * 1_000 / outcome.possible;
    let per_call = outcome.decisions / outcome.calls;
    println!("{name}: one call in {per_call}, {used} of 1000 used");
    assert_eq!(outcome.overshoot, 0, "{name}: {outcome:?}");
    let is_used = outcome.admitted * 100 >= outcome.possible * 95;
    assert!(is_used, "{name}: {outcome:?}");
    let has_few = outcome.calls * decisions <= outcome.decisions;
    assert!(has_few, "{name}: {outcome:?}");
}

#[test]
fn a_saturated_fleet_uses_its_limit_with_a_fiftieth_of_the_calls() {
    let lease = Lease::new(Percent::new(20), Duration::from_secs(1));
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
    ] {
        // In percent of what passes.
        for load in [105, 111, 142, 200, 234, 300, 500, 2_000] {
            let limit = Limit::builder(algorithm, 5_000, Duration::from_secs(1));
            let config = FleetConfig {
                duration: 5_000_000,
                ..steady(limit, lease, 20_000 / load)
            };
            expect_few_calls(&run(&config), 50, &format!("{algorithm:?}, {load}%"));
        }
    }
}

/// From a fifth of what passes to five times as much. A smaller limit has smaller grants.
#[test]
fn leases_save_calls_at_any_load() {
    let lease = Lease::new(Percent::new(20), Duration::from_secs(1));
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow] {
        for gap in [5_000, 2_000, 1_050, 900, 700, 500, 200] {
            let limit = Limit::builder(algorithm, 1_000, Duration::from_secs(1));
            let outcome = run(&steady(limit, lease, gap));
            expect_few_calls(&outcome, 12, &format!("{algorithm:?}, {gap}"));
        }
    }
}

/// Instances crash many times in one window of a month, with requests in bursts and evenly.
#[test]
fn a_crash_costs_what_an_instance_uses_within_a_lease_twice_over() {
    let lease = Lease::new(Percent::new(20), Duration::from_secs(1));
    let month = Duration::from_secs(30 * 86_400);
    let limit = Limit::builder(Algorithm::FixedWindow, 20_000, month);
    let steady = steady(limit, lease, 0);
    for (mean_gap, burst) in [(100_000, 1_000), (3_300, 0)] {
        let config = FleetConfig {
            duration: 60_000_000,
            traffic: Traffic {
                mean_gap,
                burst,
                most_burst: 60,
                ..steady.traffic.clone()
            },
            churn: Churn {
                crash: 1_600_000,
                shutdown: 0,
                down: 100_000,
            },
            ..steady.clone()
        };
        let outcome = run(&config);
        let instances = u64::from(config.instances);
        // Those that are up at the end have units, too.
        let ends = outcome.crashes + instances;
        let used = outcome.decisions / (config.duration / 1_000_000) / instances;
        println!(
            "{} lost in {ends} ends, {used} used within a lease",
            outcome.expired
        );
        assert_eq!(outcome.overshoot, 0, "{outcome:?}");
        assert!(outcome.crashes > 20, "{outcome:?}");
        assert!(outcome.local * 3 > outcome.decisions, "{outcome:?}");
        assert!(outcome.expired <= 2 * used * ends, "{outcome:?}");
    }
}

/// A lease ends with its window, so asking for another one in the same window gains nothing.
#[test]
fn leases_that_are_longer_than_a_window_cost_no_more_calls_than_they_save() {
    for (window, life, gap) in [(50, 200, 10_000), (20, 100, 4_000)] {
        let lease = Lease::new(Percent::new(50), Duration::from_millis(life));
        let window = Duration::from_millis(window);
        let limit = Limit::builder(Algorithm::FixedWindow, 100, window);
        let outcome = run(&steady(limit, lease, gap));
        expect_few_calls(&outcome, 1, &format!("{window:?}"));
    }
}
