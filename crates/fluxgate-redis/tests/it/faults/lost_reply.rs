//! The server decides and charges, but the reply is lost.

use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_testkit::{FaultProxy, RedisServer, ReplyFault};
use tokio::task::JoinSet;

use crate::support::{Bench, one_band, store_at};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_reply_is_lost_is_charged_once_and_not_repeated() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let mut cli = server.cli();
    for algorithm in ["token_bucket", "fixed_window", "sliding_log"] {
        for (fault, label) in [
            (ReplyFault::SwallowAndClose, "redis_error"),
            (ReplyFault::Swallow, "timeout"),
            (ReplyFault::Cut(3), "bad_response"),
        ] {
            cli.command(&["FLUSHALL"]).expect_ok();
            let rules = one_band("deny", algorithm, 10, "300d");
            let store = store_at(proxy.url("redis"));
            // Only a reply that never comes has to miss the deadline.
            let store = match fault {
                ReplyFault::Swallow => store.deadline(Duration::from_secs(3)),
                _ => store,
            };
            let bench = Bench::new(rules, store);
            // Now it is connected, and the server has the script.
            bench.recovery("somebody").await;
            bench.errors.clear();
            let evalsha = cli.calls("evalsha");
            let eval = cli.calls("eval");
            let what = format!("{algorithm}, {fault:?}");
            proxy.fault_reply_to("EVALSHA", fault);
            let decision = bench.check("ann").await;
            assert_eq!(decision.outcome(), Outcome::FailedClosed, "{what}");
            assert_eq!(bench.errors.labels(), [label], "{what}");
            assert_eq!(proxy.faults_pending(), 0, "{what}");
            bench.recovers("somebody else").await;
            let retried = cli.calls("evalsha") - evalsha;
            assert_eq!(retried, 2, "{what}: once for each of them");
            assert_eq!(cli.calls("eval"), eval, "{what}");
            assert_eq!(bench.left("ann").await, 9, "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_whose_reply_is_lost_is_made_once() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    for algorithm in ["token_bucket", "fixed_window", "sliding_log"] {
        let rules = one_band("deny", algorithm, 10, "300d");
        let bench = Bench::new(rules, store_at(proxy.url("redis")));
        assert!(bench.check_cost(algorithm, 5).await.allowed());
        proxy.fault_reply_to("EVALSHA", ReplyFault::SwallowAndClose);
        let refund = bench.limiter.refund("api", "r", &[algorithm], 2).await;
        assert!(refund.is_err(), "{algorithm}");
        bench.recovers("somebody").await;
        assert_eq!(bench.left(algorithm).await, 7, "{algorithm}");
    }
}

/// Under load many requests share a reply: none is charged twice, and none is
/// admitted without a charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_requests_with_lost_replies_are_charged_at_most_once() {
    const LIMIT: u64 = 100_000;
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let rules = one_band("deny", "fixed_window", LIMIT, "300d");
    let bench = Bench::new(rules, store_at(proxy.url("redis")));
    bench.recovery("somebody").await;
    for _ in 0..10 {
        proxy.fault_reply_to("EVALSHA", ReplyFault::SwallowAndClose);
    }
    let mut clients = JoinSet::new();
    for _ in 0..32 {
        let bench = bench.clone();
        clients.spawn(async move {
            let mut admitted = 0;
            for _ in 0..20 {
                admitted += u64::from(bench.check("ann").await.allowed());
            }
            admitted
        });
    }
    let mut admitted = 0;
    while let Some(client) = clients.join_next().await {
        admitted += client.unwrap();
    }
    proxy.heal();
    bench.recovers("somebody").await;
    let charged = LIMIT - bench.left("ann").await;
    let span = admitted..=32 * 20;
    assert!(span.contains(&charged), "{charged} for {admitted} admitted");
}
