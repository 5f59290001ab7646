//! A dead shard, and a cluster that is down.

use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{Limiter, Outcome, RuleSets};
use fluxgate_redis::RedisStore;
use fluxgate_redis::reason;
use fluxgate_testkit::{RedisCluster, Stopwatch};

use crate::support::{RECOVERY, SLACK, patient, rules, until_async, user, with_error_log};

/// Missed by a node that hangs, and by no other on a busy machine.
const DEADLINE: Duration = Duration::from_secs(3);

fn per_user(on_error: &str) -> RuleSets {
    rules(&format!(
        "rule_sets: {{ api: {{ on_error: {on_error}, rules: [ {{ id: r, scope: per_user, \
         algorithm: fixed_window, bands: [ {{ capacity: 100000, window: 300d }} ] }} ] }} }}"
    ))
}

/// Returns some users of each node.
async fn users(cluster: &RedisCluster, limiter: &Limiter<RedisStore>) -> Vec<Vec<String>> {
    for number in 0..24 {
        let name = format!("user-{number}.");
        let decision = limiter.check("api", &user(&name)).await;
        assert_eq!(decision.outcome(), Outcome::Allowed);
    }
    let of_node = |node: &fluxgate_testkit::RedisServer| {
        let keys = node.cli().keys("*user-*");
        let name = |key: &String| {
            let start = key.find("user-").unwrap();
            let end = start + key[start..].find('.').unwrap();
            key[start..=end].to_owned()
        };
        keys.iter().map(name).collect::<Vec<_>>()
    };
    let users: Vec<_> = cluster.nodes().iter().map(of_node).collect();
    assert!(users.iter().all(|users| !users.is_empty()), "{users:?}");
    users
}

async fn outcome(limiter: &Limiter<RedisStore>, name: &str) -> Outcome {
    limiter.check("api", &user(name)).await.outcome()
}

/// Sends requests for users of all nodes at once, and expects that only those of
/// the first node fail.
async fn expect_failures_on_the_first(
    limiter: &Limiter<RedisStore>,
    users: &[Vec<String>],
    trouble: Outcome,
) {
    for round in 0..12 {
        for (node, users) in users.iter().enumerate() {
            let watch = Stopwatch::start();
            let outcome = outcome(limiter, &users[round % users.len()]).await;
            assert!(watch.elapsed() < DEADLINE + SLACK);
            let expected = if node == 0 { trouble } else { Outcome::Allowed };
            assert_eq!(outcome, expected, "node {node}, round {round}");
        }
    }
}

async fn expect_recovery(limiter: &Limiter<RedisStore>, users: &[Vec<String>]) {
    let watch = Stopwatch::start();
    for name in users.iter().flatten() {
        until_async("everybody is served again", async || {
            outcome(limiter, name).await == Outcome::Allowed
        })
        .await;
    }
    assert!(watch.elapsed() < RECOVERY + SLACK, "{:?}", watch.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_keys_of_a_dead_shard_fail() {
    let cluster = RedisCluster::start(3);
    let store = patient(cluster.urls()).deadline(DEADLINE).connect();
    let (limiter, failures) = with_error_log(per_user("local"), store.await.unwrap());
    let users = users(&cluster, &limiter).await;
    cluster.kill_node(0);
    expect_failures_on_the_first(&limiter, &users, Outcome::Fallback).await;
    // Now the other nodes know it, too, and report it.
    cluster.wait_until_down(0);
    expect_failures_on_the_first(&limiter, &users, Outcome::Fallback).await;
    let reasons = failures.reasons();
    let known = [
        reason::REDIS_ERROR,
        reason::CIRCUIT_OPEN,
        reason::CLUSTER_DOWN,
        Reason::TIMEOUT,
    ];
    assert!(reasons.iter().all(|reason| known.contains(reason)));
    cluster.restart_node(0);
    expect_recovery(&limiter, &users).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_shard_delays_only_its_own_keys() {
    let cluster = RedisCluster::start(3);
    let store = patient(cluster.urls()).deadline(DEADLINE).connect();
    let (limiter, failures) = with_error_log(per_user("deny"), store.await.unwrap());
    let users = users(&cluster, &limiter).await;
    cluster.node(0).pause();
    expect_failures_on_the_first(&limiter, &users, Outcome::FailedClosed).await;
    let reasons = failures.reasons();
    assert_eq!(reasons[0], Reason::TIMEOUT, "{reasons:?}");
    assert!(reasons.contains(&reason::CIRCUIT_OPEN), "{reasons:?}");
    cluster.node(0).resume();
    tokio::task::block_in_place(|| cluster.wait_until_ok());
    expect_recovery(&limiter, &users).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_recovers() {
    let cluster = RedisCluster::start(3);
    let store = patient(cluster.urls()).deadline(DEADLINE).connect();
    let (limiter, _) = with_error_log(per_user("local"), store.await.unwrap());
    let users = users(&cluster, &limiter).await;
    for node in 0..3 {
        cluster.kill_node(node);
    }
    for _ in 0..5 {
        for name in users.iter().flatten() {
            let watch = Stopwatch::start();
            assert_eq!(outcome(&limiter, name).await, Outcome::Fallback);
            assert!(watch.elapsed() < DEADLINE + SLACK);
        }
    }
    tokio::task::block_in_place(|| {
        for node in cluster.nodes() {
            node.restart();
        }
        cluster.wait_until_ok();
    });
    expect_recovery(&limiter, &users).await;
}
