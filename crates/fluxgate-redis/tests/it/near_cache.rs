//! Which denials are remembered, and for how long.

use std::time::Duration;

use fluxgate_core::{Decision, Outcome, RequestContext, RuleSets};
use fluxgate_testkit::{Cli, RedisServer, Stopwatch};
use tokio::time::{Instant, sleep};

use crate::support::{ALGORITHMS, Bench, SLACK, one_band, store_at, until};

/// Uses up a user's limit and gets a denial.
async fn denied(bench: &Bench, limit: u64) {
    assert!(bench.check_cost("ann", limit).await.allowed());
    assert!(!bench.check_cost("ann", 2).await.allowed());
}

/// Returns whether a call reaches the server.
async fn asks<T>(cli: &mut Cli, call: impl Future<Output = T>) -> (T, bool) {
    let before = cli.calls("evalsha") + cli.calls("eval");
    let answer = call.await;
    let after = cli.calls("evalsha") + cli.calls("eval");
    (answer, after > before)
}

fn retry_micros(decision: &Decision) -> u64 {
    decision.retry().after().unwrap().get()
}

#[tokio::test]
async fn a_denial_is_repeated_from_the_cache_for_the_same_cost() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    for algorithm in ALGORITHMS {
        cli.command(&["FLUSHALL"]).expect_ok();
        let rules = one_band("deny", algorithm, 10, "150d");
        let bench = Bench::new(rules, store_at(server.url()));
        let start = Instant::now();
        denied(&bench, 10).await;
        let (again, asked) = asks(&mut cli, bench.check_cost("ann", 2)).await;
        assert_eq!(again.outcome(), Outcome::Denied, "{algorithm}");
        // The denial is remembered for a second.
        if start.elapsed() < Duration::from_millis(900) {
            assert!(!asked, "{algorithm}");
        }
        let (_, asked) = asks(&mut cli, bench.check_cost("bob", 2)).await;
        assert!(asked, "{algorithm}: another user");
    }
}

#[tokio::test]
async fn a_greater_cost_is_denied_from_the_cache_and_a_smaller_one_is_sent() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    for algorithm in ALGORITHMS {
        cli.command(&["FLUSHALL"]).expect_ok();
        let rules = one_band("deny", algorithm, 10, "150d");
        let bench = Bench::new(rules, store_at(server.url()));
        assert!(bench.check_cost("ann", 9).await.allowed());
        let start = Instant::now();
        assert!(!bench.check_cost("ann", 2).await.allowed());
        let (greater, asked) = asks(&mut cli, bench.check_cost("ann", 3)).await;
        assert!(!greater.allowed());
        // The summary of a log holds for one cost only.
        let local = algorithm != "sliding_log" && start.elapsed() < Duration::from_millis(900);
        assert!(!(local && asked), "{algorithm}");
        let (smaller, asked) = asks(&mut cli, bench.check_cost("ann", 1)).await;
        assert!(smaller.allowed() && asked, "{algorithm}");
    }
}

#[tokio::test]
async fn a_denial_expires_after_a_second_however_long_the_wait() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let rules = one_band("deny", "fixed_window", 10, "300d");
    let bench = Bench::new(rules, store_at(server.url()));
    denied(&bench, 10).await;
    let watch = Stopwatch::start();
    // Another process resets the user.
    cli.command(&["FLUSHALL"]).expect_ok();
    while !bench.check_cost("ann", 2).await.allowed() {
        let waited = watch.elapsed();
        assert!(waited < Duration::from_secs(1) + SLACK, "{waited:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_denial_expires_when_its_wait_is_over() {
    let server = RedisServer::start();
    for algorithm in ["token_bucket", "leaky_bucket", "sliding_log"] {
        server.cli().command(&["FLUSHALL"]).expect_ok();
        let rules = one_band("deny", algorithm, 10, "300ms");
        let bench = Bench::new(rules, store_at(server.url()));
        assert!(bench.check_cost("ann", 10).await.allowed());
        let denied = bench.check_cost("ann", 10).await;
        if denied.allowed() {
            // The machine was too slow: the window has passed.
            continue;
        }
        // A little more, since there are two clocks.
        sleep(Duration::from_micros(retry_micros(&denied) + 2000)).await;
        let decision = bench.check_cost("ann", 10).await;
        assert_eq!(decision.outcome(), Outcome::Allowed, "{algorithm}");
    }
}

#[tokio::test]
async fn the_reported_wait_shrinks_with_time() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        let rules = one_band("deny", algorithm, 10, "150d");
        let bench = Bench::new(rules, store_at(server.url()));
        let user = algorithm;
        assert!(bench.check_cost(user, 10).await.allowed());
        let start = Instant::now();
        let first = retry_micros(&bench.check_cost(user, 10).await);
        let asked = Instant::now();
        sleep(Duration::from_millis(20)).await;
        let slept = asked.elapsed().as_micros() as u64;
        let second = retry_micros(&bench.check_cost(user, 10).await);
        let most = start.elapsed().as_micros() as u64;
        let shrunk = first - second;
        // The two clocks may differ a little.
        assert!(
            shrunk + 1000 >= slept,
            "{algorithm}: {shrunk} of {slept} us"
        );
        assert!(shrunk <= most + 1000, "{algorithm}: {shrunk} of {most} us");
    }
}

#[tokio::test]
async fn a_denial_does_not_outlive_a_rule_a_refund_or_a_reset() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    for algorithm in ALGORITHMS {
        let rules = |capacity| one_band("deny", algorithm, capacity, "150d");
        let bench = Bench::new(rules(10), store_at(server.url()));
        let limiter = &bench.limiter;
        denied(&bench, 10).await;
        limiter.refund("api", "r", &["ann"], 3).await.unwrap();
        assert!(bench.check_cost("ann", 2).await.allowed(), "{algorithm}");
        assert!(!bench.check_cost("ann", 2).await.allowed(), "{algorithm}");
        limiter.reset("api", "r", &["ann"]).await.unwrap();
        denied(&bench, 10).await;
        limiter.reset_rule("api", "r").await.unwrap();
        denied(&bench, 10).await;
        // Another limit applies at once; an empty bucket stays empty.
        limiter.replace_rules(rules(20)).await.unwrap();
        let (decision, asked) = asks(&mut cli, bench.check_cost("ann", 2)).await;
        assert!(asked, "{algorithm}");
        let bucket = algorithm.ends_with("bucket");
        assert_eq!(decision.allowed(), !bucket, "{algorithm}");
        // And so does another window: a bucket is half full, the others start
        // from zero.
        assert!(!bench.check_cost("ann", 20).await.allowed(), "{algorithm}");
        let other = one_band("deny", algorithm, 20, "300d");
        limiter.replace_rules(other).await.unwrap();
        let left = if bucket { 9 } else { 20 };
        assert!(bench.check_cost("ann", left).await.allowed(), "{algorithm}");
        limiter.reset_rule("api", "r").await.unwrap();
    }
}

/// Of two rules, one denies. A cached denial does not charge the other.
#[tokio::test]
async fn a_cached_denial_charges_nothing() {
    let server = RedisServer::start();
    let rules = "
rule_sets:
  api:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 100, window: 300d } ] }
      - { id: narrow, scope: global, bands: [ { capacity: 2, window: 300d } ] }
";
    let bench = Bench::new(RuleSets::from_yaml(rules).unwrap(), store_at(server.url()));
    for _ in 0..50 {
        let _ = bench.check("ann").await;
    }
    assert_eq!(bench.left("ann").await, 98);
}

/// A cached denial reports what this process has charged meanwhile.
#[tokio::test]
async fn a_denial_reports_no_numbers_from_before_a_local_charge() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        let rules = one_band("deny", algorithm, 10, "150d");
        let bench = Bench::new(rules, store_at(server.url()));
        let user = algorithm;
        let first = bench.check_cost(user, 20).await;
        assert_eq!(first.outcome(), Outcome::Never, "{algorithm}");
        assert_eq!(first.remaining(), Some(10), "{algorithm}");
        assert!(bench.check_cost(user, 7).await.allowed(), "{algorithm}");
        let again = bench.check_cost(user, 20).await;
        assert_eq!(again.remaining(), Some(3), "{algorithm}");
        assert!(again.reset_micros().get() > 0, "{algorithm}");
    }
}

/// One global rule and one per user, with a path for each alone.
fn two_rules(everybody: u64) -> RuleSets {
    let rules = format!(
        "
rule_sets:
  api:
    rules:
      - {{ id: user, match: {{ path: [\"/user\", \"/both\"] }}, scope: per_user, bands: [ {{ capacity: 10, window: 300d }} ] }}
      - {{ id: all, match: {{ path: [\"/all\", \"/both\"] }}, scope: global, bands: [ {{ capacity: {everybody}, window: 300d }} ] }}
"
    );
    RuleSets::from_yaml(&rules).unwrap()
}

async fn at(bench: &Bench, path: &str, user: &str, cost: u64) -> Decision {
    let context = RequestContext::builder().user(user).path(path).cost(cost);

    bench.limiter.check("api", &context.build()).await
}

/// A charge on another path may have made another band deny.
#[tokio::test]
async fn a_denial_names_all_denying_bands_after_another_charge() {
    let server = RedisServer::start();
    let bench = Bench::new(two_rules(20), store_at(server.url()));
    let violated = |decision: &Decision| decision.violated().count();
    assert!(at(&bench, "/user", "ann", 9).await.allowed());
    assert_eq!(violated(&at(&bench, "/both", "ann", 5).await), 1);
    // The global rule has 17 units left, and then 2.
    assert!(at(&bench, "/all", "bob", 3).await.allowed());
    assert_eq!(violated(&at(&bench, "/both", "ann", 5).await), 1);
    assert!(at(&bench, "/all", "bob", 15).await.allowed());
    assert_eq!(violated(&at(&bench, "/both", "ann", 5).await), 2);
}

/// Charges to a band with enough units left keep a denial cached.
#[tokio::test]
async fn charges_to_a_passing_band_keep_a_denial_cached() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let bench = Bench::new(two_rules(1_000), store_at(server.url()));
    let start = Instant::now();
    assert!(at(&bench, "/user", "ann", 10).await.allowed());
    assert!(!at(&bench, "/both", "ann", 5).await.allowed());
    for _ in 0..20 {
        assert!(at(&bench, "/all", "bob", 1).await.allowed());
        let (again, asked) = asks(&mut cli, at(&bench, "/both", "ann", 5)).await;
        assert!(!again.allowed());
        assert!(!asked || start.elapsed() > Duration::from_millis(900));
    }
}

/// More denials than entries: none is wrong, and the cache does not grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_denials_than_entries_replace_each_other() {
    let server = RedisServer::start();
    let rules = one_band("deny", "fixed_window", 1, "300d");
    let bench = Bench::new(rules, store_at(server.url()));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let bench = bench.clone();
        tasks.spawn(async move {
            for number in 0..100 {
                let user = format!("user-{task}-{number}");
                assert!(bench.check(&user).await.allowed());
                for _ in 0..2 {
                    let again = bench.check(&user).await;
                    assert_eq!(again.outcome(), Outcome::Denied);
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let mut cli = server.cli();
    until("every user has a key", || cli.dbsize() == 6400).await;
    assert_eq!(bench.errors.all(), []);
}
