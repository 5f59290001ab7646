//! Many requests wait for a dead server, which comes back.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_testkit::{FaultProxy, Mode, RedisServer, Stopwatch};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Bench, RECOVERY, SLACK, one_band, store_at, until};

const WAITERS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_500_waiting_requests_one_connects_with_back_off() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    proxy.set_mode(Mode::Refuse);
    let rules = one_band("deny", "fixed_window", 1_000_000, "300d");
    let bench = Bench::new(rules, store_at(proxy.url("redis")));
    let mut waiters = JoinSet::new();
    let start = Instant::now();
    for waiter in 0..WAITERS {
        let bench = bench.clone();
        waiters.spawn(async move {
            let user = format!("user-{waiter}");
            while bench.check(&user).await.outcome() != Outcome::Allowed {
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    until("two attempts are refused", || proxy.accepted() > 1).await;
    sleep(Duration::from_millis(1000)).await;
    // Five timeouts open the breaker; from then on there are only probes, each
    // after a longer pause.
    let attempts = proxy.accepted();
    assert!(
        (2..=12).contains(&attempts),
        "{attempts} connections in 1 s"
    );
    proxy.heal();
    let healed = Stopwatch::start();
    let before = proxy.accepted();
    while let Some(waiter) = waiters.join_next().await {
        waiter.unwrap();
    }
    let took = healed.elapsed();
    assert!(took < RECOVERY + SLACK, "all served after {took:?}");
    let connections = proxy.accepted() - before;
    assert!(
        connections <= 1,
        "{connections} connections for all of them"
    );
    assert_eq!(proxy.open(), 1);
    let labels = bench.errors.labels();
    let fits = |label: &&str| matches!(*label, "redis_error" | "circuit_open");
    assert!(
        labels.iter().all(fits),
        "{labels:?} in {:?}",
        start.elapsed()
    );
}

/// 500 concurrent requests on a fresh store share one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_500_requests_share_one_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    proxy.set_mode(Mode::Delay(Duration::from_millis(20)));
    let rules = one_band("deny", "fixed_window", 1_000_000, "300d");
    let bench = Bench::new(rules, store_at(proxy.url("redis")));
    let together = Arc::new(Barrier::new(WAITERS));
    let mut waiters = JoinSet::new();
    for waiter in 0..WAITERS {
        let (bench, together) = (bench.clone(), Arc::clone(&together));
        waiters.spawn(async move {
            together.wait().await;
            bench.check(&format!("user-{waiter}")).await.outcome()
        });
    }
    while let Some(waiter) = waiters.join_next().await {
        assert_eq!(waiter.unwrap(), Outcome::Allowed);
    }
    assert_eq!(proxy.accepted(), 1);
}
