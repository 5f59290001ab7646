//! A primary behind sentinels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::{Limiter, Outcome, RuleSets};
use fluxgate_redis::reason;
use fluxgate_redis::{ConnectError, RedisStore, RedisStoreBuilder, Topology};
use fluxgate_testkit::{RedisServer, Sentinels, Stopwatch, ports, wait_until};

use crate::support::{RECOVERY, SLACK, patient, rules, until_async, user, with_error_log};

/// Missed by no server that answers, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(3);

fn per_user() -> RuleSets {
    rules(
        "rule_sets: { api: { on_error: deny, rules: [ { id: r, scope: per_user, \
         algorithm: fixed_window, bands: [ { capacity: 100000, window: 300d } ] } ] } }",
    )
}

fn store_on(sentinels: &Sentinels, urls: Vec<String>) -> RedisStoreBuilder {
    let master = sentinels.master_name().to_owned();
    patient(urls).topology(Topology::Sentinel { master })
}

async fn outcome(limiter: &Limiter<RedisStore>) -> Outcome {
    limiter.check("api", &user("ann")).await.outcome()
}

/// Returns whether a server has the key.
fn has_key(server: &RedisServer) -> bool {
    server.cli().dbsize() == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_ends_at_the_new_primary() {
    let sentinels = Sentinels::start();
    let store = store_on(&sentinels, sentinels.sentinel_urls());
    let store = store.deadline(DEADLINE);
    let (limiter, failures) = with_error_log(per_user(), store.connect().await.unwrap());
    assert_eq!(outcome(&limiter).await, Outcome::Allowed);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (limiter, is_over) = (limiter.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    // Clients see nothing of the failover but `on_error`.
                    let watch = Stopwatch::start();
                    let outcome = outcome(&limiter).await;
                    let expected = [Outcome::Allowed, Outcome::FailedClosed];
                    assert!(expected.contains(&outcome), "{outcome:?}");
                    assert!(watch.elapsed() < DEADLINE + SLACK);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        })
        .collect();
    let (old, new) = tokio::task::block_in_place(|| {
        let old = sentinels.kill_primary();
        (old, sentinels.wait_for_failover())
    });
    let recovered = until_async("the new primary is found", async || {
        outcome(&limiter).await == Outcome::Allowed
    });
    let recovered = recovered.await;
    assert!(recovered < RECOVERY + SLACK, "{recovered:?}");
    // And stays there.
    for _ in 0..50 {
        assert_eq!(outcome(&limiter).await, Outcome::Allowed);
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert_ne!(old.port(), new.port());
    assert!(has_key(new));
    assert!(!failures.reasons().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_demoted_while_connected_is_left() {
    let sentinels = Sentinels::start();
    let store = store_on(&sentinels, sentinels.sentinel_urls());
    let (limiter, failures) = with_error_log(per_user(), store.connect().await.unwrap());
    assert_eq!(outcome(&limiter).await, Outcome::Allowed);
    let (old, new) = (sentinels.primary(), sentinels.replica());
    tokio::task::block_in_place(|| {
        sentinels.fail_over();
        wait_until("all to name the new primary", || {
            sentinels.wait_for_failover().port() == new.port()
        });
    });
    // As the sentinels do later. Until then it accepts writes silently.
    let port = new.port().to_string();
    let follow = ["REPLICAOF", "127.0.0.1", &port];
    old.cli().command(&follow).expect_ok();
    let recovered = until_async("the new primary is found", async || {
        outcome(&limiter).await == Outcome::Allowed
    });
    assert!(recovered.await < RECOVERY + SLACK);
    let scripts = || new.cli().calls("evalsha") + new.cli().calls("eval");
    let before = scripts();
    assert_eq!(outcome(&limiter).await, Outcome::Allowed);
    assert!(scripts() > before);
    let reasons = failures.reasons();
    let known = [reason::READONLY, reason::REDIS_ERROR];
    assert!(reasons.iter().all(|reason| known.contains(reason)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_demoted_primary_is_dropped_at_its_first_readonly() {
    let sentinels = Sentinels::start();
    let store = store_on(&sentinels, sentinels.sentinel_urls());
    let (limiter, failures) = with_error_log(per_user(), store.connect().await.unwrap());
    assert_eq!(outcome(&limiter).await, Outcome::Allowed);
    // Without the sentinels, and without closing connections.
    let (old, new) = (sentinels.primary(), sentinels.replica());
    let port = new.port().to_string();
    old.cli()
        .command(&["REPLICAOF", "127.0.0.1", &port])
        .expect_ok();
    // The sentinels still name it, but its ROLE is not master.
    assert_eq!(outcome(&limiter).await, Outcome::FailedClosed);
    assert_eq!(failures.reasons(), [reason::READONLY]);
    new.cli().command(&["REPLICAOF", "NO", "ONE"]).expect_ok();
    old.cli().command(&["REPLICAOF", "NO", "ONE"]).expect_ok();
    let recovered = until_async("the primary is one again", async || {
        outcome(&limiter).await == Outcome::Allowed
    });
    assert!(recovered.await < RECOVERY + SLACK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_and_unresponsive_sentinels_are_skipped() {
    let sentinels = Sentinels::start();
    let free = ports::free();
    let dead = format!("redis://{}", free.addr());
    let deaf = [RedisServer::start(), RedisServer::start()];
    let living = sentinels.sentinel_urls()[1].clone();
    let store = store_on(&sentinels, vec![dead, living.clone()]);
    let (limiter, _) = with_error_log(per_user(), store.connect().await.unwrap());
    assert_eq!(outcome(&limiter).await, Outcome::Allowed);
    for deaf in &deaf {
        deaf.pause();
    }
    let urls = vec![deaf[0].url(), deaf[1].url(), living];
    let store = store_on(&sentinels, urls).deadline(Duration::from_millis(500));
    let (limiter, _) = with_error_log(per_user(), store.build().unwrap());
    let found = until_async("the one that answers is asked", async || {
        outcome(&limiter).await == Outcome::Allowed
    });
    assert!(found.await < Duration::from_secs(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_no_sentinel_knows_is_named_in_the_error() {
    let sentinels = Sentinels::start();
    let master = "nobody".to_owned();
    let store = patient(sentinels.sentinel_urls()).topology(Topology::Sentinel { master });
    let cause = store.connect().await.unwrap_err();
    assert!(matches!(cause, ConnectError::Store(_)));
    assert!(cause.to_string().contains(r#""nobody""#), "{cause}");
    assert!(cause.to_string().contains("sentinel"), "{cause}");
}
