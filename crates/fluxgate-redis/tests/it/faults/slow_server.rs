//! A server that is slow or does not answer.

use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_core::store::Reason;
use fluxgate_redis::BreakerState;
use fluxgate_redis::reason;
use fluxgate_testkit::{FaultProxy, Mode, RedisServer, Stopwatch, WAIT_TIMEOUT};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Bench, RECOVERY, SLACK, one_band, store_at, until};

const DEADLINE: Duration = Duration::from_millis(100);

fn bench(url: String) -> Bench {
    let rules = one_band("deny", "token_bucket", 1_000_000, "300d");
    Bench::new(rules, store_at(url).deadline(DEADLINE))
}

/// Runs many clients for this long; none may wait longer than the deadline.
async fn checked_for(bench: &Bench, span: Duration) {
    let mut clients = JoinSet::new();
    for client in 0..64 {
        let bench = bench.clone();
        clients.spawn(async move {
            let user = format!("user-{client}");
            let end = Instant::now() + span;
            while Instant::now() < end {
                let watch = Stopwatch::start();
                let _ = bench.check(&user).await;
                let took = watch.elapsed();
                assert!(took <= DEADLINE + SLACK, "took {took:?}");
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
}

/// Sends requests until the breaker is open.
async fn opens(bench: &Bench) {
    let start = Instant::now();
    while bench.store().breaker_state() == BreakerState::Closed {
        assert!(start.elapsed() < WAIT_TIMEOUT, "the breaker does not open");
        checked_for(bench, Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_opens_the_breaker_and_no_request_exceeds_the_deadline() {
    let server = RedisServer::start();
    let bench = bench(server.url());
    bench.recovery("somebody").await;
    assert_eq!(bench.store().breaker_state(), BreakerState::Closed);
    let start = Instant::now();
    // On a busy machine too few requests may wait for an answer in the first pause.
    let paused = loop {
        let mut cli = server.cli();
        cli.command(&["CLIENT", "PAUSE", "1000"]).expect_ok();
        let paused = Stopwatch::start();
        checked_for(&bench, Duration::from_millis(700)).await;
        if bench.errors.count(reason::CIRCUIT_OPEN) > 0 {
            break paused;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "the breaker does not open");
    };
    assert!(bench.errors.count(Reason::TIMEOUT) > 0);
    for error in bench.errors.all() {
        let fits = matches!(error.reason, Reason::TIMEOUT | reason::CIRCUIT_OPEN);
        assert!(fits, "{error}");
    }
    bench.recovery("somebody").await;
    let took = paused.elapsed();
    assert!(took < Duration::from_secs(1) + RECOVERY + SLACK, "{took:?}");
    assert_eq!(bench.store().breaker_state(), BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_breaker_is_open_one_probe_at_a_time_reaches_the_server() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = bench(proxy.url("redis"));
    bench.recovery("somebody").await;
    proxy.set_mode(Mode::BlackHole);
    opens(&bench).await;
    // Every failed probe drops its connection, so the number of connections shows
    // the number of probes: the first after half of 200, 400 and 800 ms.
    let before = proxy.accepted();
    bench.errors.clear();
    checked_for(&bench, Duration::from_millis(1000)).await;
    let probes = proxy.accepted() - before;
    assert!(probes <= 6, "{probes} probes in a second");
    let (open, silent) = (
        bench.errors.count(reason::CIRCUIT_OPEN),
        bench.errors.count(Reason::TIMEOUT),
    );
    // One probe has at most 64 clients.
    assert!(silent <= 64 * 6 && open > silent, "{silent} and {open}");
    proxy.heal();
    proxy.reset_connections();
    bench.recovers("somebody").await;
}

/// Replies that come too late each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_replies_count_as_timeouts() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = bench(proxy.url("redis"));
    bench.recovery("somebody").await;
    proxy.set_mode(Mode::Delay(Duration::from_millis(400)));
    opens(&bench).await;
    proxy.heal();
    bench.recovers("somebody").await;
}

/// Checks that the connection is dropped after the deadline, without another
/// request.
async fn expect_dropped(bench: &Bench, proxy: &FaultProxy) {
    let before = bench.check("ann").await;
    assert_eq!(before.outcome(), Outcome::FailedClosed);
    assert_eq!(bench.errors.labels(), ["timeout"]);
    until("the connection is closed", || proxy.open() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_to_a_stopped_server_is_dropped_after_the_deadline() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = bench(proxy.url("redis"));
    bench.recovery("somebody").await;
    bench.errors.clear();
    server.pause();
    expect_dropped(&bench, &proxy).await;
    checked_for(&bench, Duration::from_millis(300)).await;
    server.resume();
    bench.recovers("somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_into_a_black_hole_is_dropped_after_the_deadline() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = bench(proxy.url("redis"));
    bench.recovery("somebody").await;
    bench.errors.clear();
    proxy.set_mode(Mode::BlackHole);
    expect_dropped(&bench, &proxy).await;
    checked_for(&bench, Duration::from_millis(300)).await;
    proxy.heal();
    bench.recovers("somebody").await;
}
