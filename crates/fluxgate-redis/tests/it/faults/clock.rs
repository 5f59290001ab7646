//! The server's clock jumps by an hour, back or forward.

use std::time::Duration;

use fluxgate_core::{RequestContext, RuleSets};
use fluxgate_testkit::{RedisServer, Skew, Stopwatch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{ALGORITHMS, Bench, SLACK, store_at};

const HOUR: Duration = Duration::from_secs(3600);
const WINDOW: Duration = Duration::from_secs(2);
const LIMIT: u64 = 10;
/// A rule set for each algorithm.
fn rules() -> RuleSets {
    let mut text = "rule_sets:\n".to_owned();
    for algorithm in ALGORITHMS {
        text += &format!(
            "  {algorithm}: {{ on_error: deny, rules: [ {{ id: r, scope: per_user, \
             algorithm: {algorithm}, bands: [ {{ capacity: {LIMIT}, window: 2s }} ] }} ] }}\n"
        );
    }
    RuleSets::from_yaml(&text).unwrap()
}

async fn takes(bench: &Bench, algorithm: &str, cost: u64) -> bool {
    let context = RequestContext::builder().user("ann").cost(cost).build();
    let decision = bench.limiter.check(algorithm, &context).await;
    assert_eq!(bench.errors.all(), []);
    decision.allowed()
}

/// Starts a server at the beginning of a window, so that the next one is far off.
/// An hour is a whole number of windows.
async fn at_the_beginning_of_a_window() -> (RedisServer, Bench) {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let bench = Bench::new(rules(), store_at(server.url()).near_cache(false));
    bench.store().ping().await.unwrap();
    let mut cli = server.cli();
    let window = WINDOW.as_micros() as i64;
    while cli.time_micros() % window > window / 4 {
        sleep(Duration::from_millis(10)).await;
    }
    (server, bench)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_goes_back_an_hour_admits_no_more_and_recovers_within_a_window() {
    let (server, bench) = at_the_beginning_of_a_window().await;
    for algorithm in ALGORITHMS {
        assert!(takes(&bench, algorithm, LIMIT).await, "{algorithm}");
    }
    server.set_clock_offset(Skew::Behind(HOUR));
    let back = Instant::now();
    let mut healing = JoinSet::new();
    for algorithm in ALGORITHMS {
        // No bucket can have this much before half a window has passed.
        let taken = takes(&bench, algorithm, LIMIT / 2).await;
        // The first decision corrects the state.
        let seen = Instant::now();
        let in_time = seen - back < WINDOW / 2;
        assert!(!taken || !in_time, "{algorithm}");
        let (bench, watch) = (bench.clone(), Stopwatch::start());
        healing.spawn(async move {
            while !takes(&bench, algorithm, 1).await {
                sleep(Duration::from_millis(10)).await;
            }
            (algorithm, watch.elapsed())
        });
    }
    while let Some(healed) = healing.join_next().await {
        let (algorithm, took) = healed.unwrap();
        // A sliding window has one unit free after a tenth of the next window.
        let within = WINDOW + WINDOW / 10 + SLACK;
        assert!(took <= within, "{algorithm} took {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_goes_forward_an_hour_admits_one_more_quota_at_most() {
    let (server, bench) = at_the_beginning_of_a_window().await;
    let start = Instant::now();
    for algorithm in ALGORITHMS {
        assert!(takes(&bench, algorithm, LIMIT).await, "{algorithm}");
    }
    // And back again: units taken in that hour still count.
    for skew in [Skew::Ahead(HOUR), Skew::NONE] {
        server.set_clock_offset(skew);
        for algorithm in ALGORITHMS {
            let taken = takes(&bench, algorithm, LIMIT).await;
            let more = takes(&bench, algorithm, LIMIT / 2).await;
            // Later than that, the buckets have refilled.
            let in_time = start.elapsed() < WINDOW / 2;
            if skew != Skew::NONE {
                assert!(taken, "{algorithm}");
            } else if in_time {
                assert!(!taken, "{algorithm}");
            }
            assert!(!more || !in_time, "{algorithm}, {skew:?}");
        }
    }
}
