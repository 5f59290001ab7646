//! A key holds a value of another type.

use std::time::Duration;

use fluxgate_core::{Outcome, RuleSets};
use fluxgate_testkit::{FaultProxy, Mode, RedisServer};
use tokio::task::JoinSet;

use crate::support::{ALGORITHMS, Bench, one_band, store_at, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_is_bad_types_and_is_not_changed() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    for algorithm in ALGORITHMS {
        cli.command(&["FLUSHALL"]).expect_ok();
        let rules = one_band("deny", algorithm, 10, "300d");
        let bench = Bench::new(rules, store_at(server.url()));
        bench.recovery("ann").await;
        let keys = cli.keys("*");
        let [key] = &keys[..] else {
            panic!("one key for one band: {keys:?}");
        };
        for foreign in [
            vec!["LPUSH", key, "x"],
            vec!["HSET", key, "x", "y"],
            vec!["SADD", key, "x"],
            vec!["SET", key, "hello"],
            vec!["SET", key, ""],
            vec!["ZADD", key, "1", "x"],
        ] {
            let what = format!("{algorithm}, {}", foreign[0]);
            cli.command(&["DEL", key]);
            assert_eq!(cli.command(&foreign).error(), None);
            let before = cli.command(&["DUMP", key]);
            bench.errors.clear();
            let decision = bench.check("ann").await;
            assert_eq!(decision.outcome(), Outcome::FailedClosed, "{what}");
            assert_eq!(bench.errors.labels(), ["bad_types"], "{what}");
            assert_eq!(cli.command(&["DUMP", key]), before, "{what}");
        }
        cli.command(&["DEL", key]);
        assert_eq!(bench.check("ann").await.outcome(), Outcome::Allowed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_requests_of_the_batch_are_not_affected() {
    const USERS: usize = 30;
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let mut cli = server.cli();
    for algorithm in ALGORITHMS {
        cli.command(&["FLUSHALL"]).expect_ok();
        let rules: RuleSets = one_band("deny", algorithm, 1, "300d");
        let bench = Bench::new(rules, store_at(proxy.url("redis")));
        bench.recovery("user-7").await;
        let key = cli.keys("*").remove(0);
        cli.command(&["DEL", &key]);
        cli.command(&["LPUSH", &key, "x"]);
        bench.errors.clear();
        // While the first calls are in flight, the other requests gather.
        proxy.set_mode(Mode::Delay(Duration::from_millis(30)));
        let before = cli.calls("evalsha");
        let mut tasks = JoinSet::new();
        for user in 0..USERS {
            let bench = bench.clone();
            tasks.spawn(async move {
                let decision = bench.check(&format!("user-{user}")).await;
                (user, decision.outcome())
            });
        }
        while let Some(task) = tasks.join_next().await {
            let (user, outcome) = task.unwrap();
            let expected = match user {
                7 => Outcome::FailedClosed,
                _ => Outcome::Allowed,
            };
            assert_eq!(outcome, expected, "{algorithm}: user {user}");
        }
        proxy.heal();
        assert_eq!(bench.errors.labels(), ["bad_types"], "{algorithm}");
        let calls = cli.calls("evalsha") - before;
        assert!(calls < USERS as u64, "{algorithm}: {calls} calls");
        // The server counts a call when it ends.
        until("all are counted", || cli.dbsize() == USERS as i64).await;
    }
}
