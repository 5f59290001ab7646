//! Holds when replies are lost or values are foreign.

use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{Outcome, Settlement};
use fluxgate_redis::reason;
use fluxgate_testkit::{FaultProxy, RedisServer, ReplyFault};

use super::{held, left, reserve, slots_and_tokens};
use crate::support::{ALGORITHMS, Bench, GENEROUS, store_at};

fn bench(url: String, algorithm: &str, deadline: Duration) -> Bench {
    let store = store_at(url).deadline(deadline);
    Bench::new(
        slots_and_tokens(2, "1m", algorithm),
        store.near_cache(false),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_whose_reply_is_lost_is_made_once() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    for algorithm in ALGORITHMS {
        for fault in [
            ReplyFault::SwallowAndClose,
            ReplyFault::Swallow,
            ReplyFault::Cut(3),
        ] {
            server.cli().command(&["FLUSHALL"]).expect_ok();
            let what = format!("{algorithm}, {fault:?}");
            // Only a reply that never comes has to miss the deadline, and another instance
            // does everything else.
            let deadline = match fault {
                ReplyFault::Swallow => Duration::from_millis(600),
                _ => GENEROUS,
            };
            let behind_proxy = bench(proxy.url("redis"), algorithm, deadline);
            let other = bench(server.url(), algorithm, GENEROUS);
            let limiter = &other.limiter;
            let id = held(limiter, "ann", "400").await;
            let settle = async || {
                crate::support::until_async("it is connected", async || {
                    behind_proxy.store().ping().await.is_ok()
                })
                .await;
                let cost = Settlement::Cost(900);
                behind_proxy.limiter.settle(id, cost).await
            };
            // The record cannot be read: nothing has changed.
            proxy.fault_reply_to("GET", fault.clone());
            assert!(settle().await.is_err(), "{what}");
            assert_eq!(left(limiter, "t", "ann").await, 600, "{what}");
            // It is settled, but the reply is lost.
            proxy.fault_reply_to("EVALSHA", fault);
            assert!(settle().await.is_err(), "{what}");
            assert_eq!(proxy.faults_pending(), 0, "{what}");
            let again = limiter.settle(id, Settlement::Cost(900)).await;
            assert_eq!(again, Ok(None), "{what}");
            assert_eq!(left(limiter, "t", "ann").await, 100, "{what}");
            assert_eq!(left(limiter, "r", "ann").await, 2, "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_whose_reply_is_lost_count_until_they_end() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = bench(proxy.url("redis"), "fixed_window", GENEROUS);
    bench.store().ping().await.unwrap();
    held(&bench.limiter, "ann", "1").await;
    proxy.fault_reply_to("EVALSHA", ReplyFault::SwallowAndClose);
    let failed = reserve(&bench.limiter, "ann", "1").await;
    assert_eq!(failed.outcome(), Outcome::FailedClosed);
    assert_eq!(failed.hold(), None);
    crate::support::until_async("it is connected", async || {
        bench.store().ping().await.is_ok()
    })
    .await;
    assert_eq!(
        reserve(&bench.limiter, "ann", "1").await.outcome(),
        Outcome::Denied
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_within_the_deadline() {
    let server = RedisServer::start();
    let bench = bench(server.url(), "fixed_window", Duration::from_secs(3));
    let id = held(&bench.limiter, "ann", "1").await;
    server.pause();
    let settled = bench.limiter.settle(id, Settlement::RELEASE).await;
    assert_eq!(settled.unwrap_err().reason, Reason::TIMEOUT);
    let renewed = bench.limiter.renew(id, super::MINUTE).await;
    assert_eq!(renewed.unwrap_err().reason, Reason::TIMEOUT);
    server.resume();
    bench.recovery("bob").await;
    assert!(
        bench
            .limiter
            .settle(id, Settlement::RELEASE)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn foreign_values_are_reported_and_kept() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let bench = bench(server.url(), "fixed_window", GENEROUS);
    let id = held(&bench.limiter, "ann", "1").await;
    let slots = cli.keys("*:h").remove(0);
    let record = format!("fluxgate:2:hold2:{{{id}}}");
    for key in [&slots, &record] {
        cli.command(&["RENAME", key, "kept"]).expect_ok();
        for set in [
            &["SADD", key, "a"][..],
            &["ZADD", key, "1", "a"],
            &["SET", key, "a"],
        ] {
            cli.command(&["DEL", key]);
            cli.command(set);
            let settled = bench.limiter.settle(id, Settlement::RELEASE).await;
            assert_eq!(settled.unwrap_err().reason, reason::BAD_TYPES, "{set:?}");
            let renewed = bench.limiter.renew(id, super::MINUTE).await;
            // MGET does not tell a value of another type from none.
            assert!(renewed.is_err() || renewed == Ok(false), "{set:?}");
        }
        let decision = reserve(&bench.limiter, "ann", "1").await;
        let is_slots = *key == slots;
        assert_eq!(decision.outcome() == Outcome::FailedClosed, is_slots);
        cli.command(&["RENAME", "kept", key]).expect_ok();
    }
    assert!(
        bench
            .limiter
            .settle(id, Settlement::RELEASE)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn the_script_is_sent_again_if_the_server_lost_it() {
    let server = RedisServer::start();
    let bench = bench(server.url(), "token_bucket", GENEROUS);
    let id = held(&bench.limiter, "ann", "1").await;
    server.cli().command(&["SCRIPT", "FLUSH"]).expect_ok();
    assert!(bench.limiter.renew(id, super::MINUTE).await.unwrap());
    server.cli().command(&["SCRIPT", "FLUSH"]).expect_ok();
    assert!(
        bench
            .limiter
            .settle(id, Settlement::RELEASE)
            .await
            .unwrap()
            .is_some()
    );
}
