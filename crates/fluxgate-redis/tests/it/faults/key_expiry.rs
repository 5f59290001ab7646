//! Keys expire once the quota is full again, and not before.

use std::time::Duration;

use fluxgate_core::{RequestContext, RuleSets};
use fluxgate_testkit::{RedisServer, Stopwatch};
use tokio::time::Instant;

use crate::support::{ALGORITHMS, Bench, SLACK, one_band, store_at, until, until_async};

/// A rule of two bands for each algorithm, in one set.
fn all_algorithms() -> RuleSets {
    let mut text = "rule_sets:\n  api:\n    on_error: deny\n    rules:\n".to_owned();
    for algorithm in ALGORITHMS {
        text += &format!(
            "      - {{ id: {algorithm}, scope: per_user, algorithm: {algorithm}, bands: \
             [ {{ id: short, capacity: 5, window: 200ms }}, {{ id: long, capacity: 20, window: 700ms }} ] }}\n"
        );
    }
    RuleSets::from_yaml(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_left_when_all_windows_have_passed() {
    let server = RedisServer::start();
    let bench = Bench::new(all_algorithms(), store_at(server.url()));
    let mut cli = server.cli();
    for user in 0..20 {
        let user = format!("user-{user}");
        for _ in 0..8 {
            let _ = bench.check(&user).await;
        }
    }
    // Refunds, to full and beyond, and resets leave no key either.
    for algorithm in ALGORITHMS {
        let limiter = &bench.limiter;
        let refund = |user, units| limiter.refund("api", algorithm, user, units);
        refund(&["user-1"], 1).await.unwrap();
        refund(&["user-2"], 1000).await.unwrap();
        refund(&["nobody"], 3).await.unwrap();
        limiter.reset("api", algorithm, &["user-3"]).await.unwrap();
        limiter.reset("api", algorithm, &["nobody"]).await.unwrap();
    }
    bench
        .limiter
        .reset_rule("api", "sliding_log")
        .await
        .unwrap();
    // Nor do peeks, denied or not.
    for user in ["user-0", "user-3", "someone new"] {
        let context = RequestContext::builder().user(user).build();
        let _ = bench.limiter.peek("api", &context).await;
    }
    // On a busy machine the others have expired by now.
    until_async("there are keys", async || {
        let _ = bench.check("user-0").await;
        cli.dbsize() > 0
    })
    .await;
    let last = Stopwatch::start();
    until("the key space is empty", || cli.dbsize() == 0).await;
    // Two windows of the longest kind, and the server's time to expire keys.
    let took = last.elapsed();
    assert!(took < Duration::from_secs(3) + SLACK, "took {took:?}");
    assert_eq!(bench.errors.all(), []);
}

/// The key of a band expires in the millisecond in which its quota is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_lives_until_its_quota_is_full() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    for window in ["900ms", "1m", "30d", "366d"] {
        for algorithm in ALGORITHMS {
            cli.command(&["FLUSHALL"]).expect_ok();
            let what = format!("{algorithm}, {window}");
            let rules = one_band("deny", algorithm, 10, window);
            let bench = Bench::new(rules, store_at(server.url()));
            bench.store().ping().await.unwrap();
            let start = Instant::now();
            assert!(bench.check_cost("ann", 4).await.allowed(), "{what}");
            let took = start.elapsed().as_micros() as i64;
            let Some(key) = cli.keys("*").pop() else {
                // The window ended at once, which is rare but correct.
                assert_eq!(bench.left("ann").await, 10, "{what}");
                continue;
            };
            let reset_after = async || {
                let state = bench.limiter.state("api", "r", &["ann"]).await;
                state.unwrap()[0].reset_after.as_micros() as i64
            };
            let before = reset_after().await;
            let lives = cli.command(&["PTTL", &key]).int();
            let after = reset_after().await;
            // Both shrink with time, so one is read between two reads of the
            // other.
            let micros = 1000 * lives.max(0);
            // The server reports whole milliseconds of two instants, and a
            // delayed script may set the expiry that much later.
            assert!(micros >= after - 1000, "{what}: {lives} ms, {after} us");
            let most = before + took + 2000;
            assert!(micros <= most, "{what}: {lives} ms, {before} us");
        }
    }
}

/// The key exists until the quota is full; once it is gone, the quota is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_expires_before_its_quota_is_full() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    for algorithm in ALGORITHMS {
        let rules = one_band("deny", algorithm, 10, "300ms");
        let bench = Bench::new(rules, store_at(server.url()));
        assert!(bench.check_cost("ann", 10).await.allowed());
        let mut looks = 0;
        loop {
            let gone = cli.dbsize() == 0;
            let left = bench.left("ann").await;
            if gone {
                assert_eq!(left, 10, "{algorithm} after {looks} looks");
                break;
            }
            looks += 1;
        }
    }
}
