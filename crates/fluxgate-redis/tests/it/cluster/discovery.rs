//! Finding the nodes of unusual clusters.

use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{Outcome, RuleSets};
use fluxgate_redis::reason;
use fluxgate_redis::{RedisStore, Topology};
use fluxgate_testkit::{HASH_SLOTS, RedisCluster, RedisServer, Stopwatch, ports, wait_until};

use crate::support::{patient, rules, user, with_error_log};

fn per_user() -> RuleSets {
    rules(
        "rule_sets: { api: { on_error: deny, rules: [ { id: r, scope: per_user, \
         bands: [ { capacity: 100000, window: 300d } ] } ] } }",
    )
}

/// Sends requests for enough users that every node has some.
async fn expect_all_allowed(store: RedisStore) {
    let (limiter, failures) = with_error_log(per_user(), store);
    for number in 0..24 {
        let name = format!("user-{number}");
        let decision = limiter.check("api", &user(&name)).await;
        assert_eq!(decision.outcome(), Outcome::Allowed, "{failures:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_live_seed_is_enough() {
    let cluster = RedisCluster::start(3);
    let one = patient([cluster.node(1).url()]);
    expect_all_allowed(one.connect().await.unwrap()).await;
    // Nothing listens there.
    let free = ports::free();
    let dead = format!("redis://{}", free.addr());
    let urls = [dead.clone(), cluster.node(2).url()];
    for topology in [Topology::Auto, Topology::Cluster] {
        let store = patient(urls.clone()).topology(topology);
        expect_all_allowed(store.connect().await.unwrap()).await;
    }
    // Something listens but never answers.
    let deaf = RedisServer::start();
    deaf.pause();
    let urls = [deaf.url(), dead, cluster.node(2).url()];
    let store = patient(urls).topology(Topology::Cluster);
    let watch = Stopwatch::start();
    expect_all_allowed(store.connect().await.unwrap()).await;
    assert!(watch.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_first_requests_fetch_the_slot_map_once() {
    let cluster = RedisCluster::start(3);
    let node = cluster.node(0);
    node.cli().command(&["CONFIG", "RESETSTAT"]).expect_ok();
    let store = patient([node.url()]).topology(Topology::Cluster);
    let (limiter, failures) = with_error_log(per_user(), store.build().unwrap());
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let name = format!("user-{number}");
                limiter.check("api", &user(&name)).await.outcome()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Outcome::Allowed, "{failures:?}");
    }
    assert_eq!(node.cli().calls("cluster|slots"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_host_is_at_the_address_that_was_asked() {
    for kind in ["unknown-endpoint", "hostname"] {
        let cluster = RedisCluster::start_with(3, |node| {
            node.config(format!("cluster-preferred-endpoint-type {kind}"))
        });
        let store = patient([cluster.node(0).url()]).connect().await.unwrap();
        let (limiter, failures) = with_error_log(per_user(), store);
        for number in 0..24 {
            if number == 12 {
                // Redirected by a node that leaves out the host.
                tokio::task::block_in_place(|| {
                    let slot = super::slot_of_keys(&cluster, "user-1.").unwrap();
                    cluster.move_hash_slot(slot, (cluster.node_of_hash_slot(slot) + 1) % 3);
                });
            }
            let name = format!("user-{}.", number % 12);
            let decision = limiter.check("api", &user(&name)).await;
            assert_eq!(decision.outcome(), Outcome::Allowed, "{failures:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncovered_slots_are_cluster_down() {
    let cluster = RedisCluster::start(3);
    let (limiter, failures) = {
        let store = patient(cluster.urls()).connect().await.unwrap();
        with_error_log(per_user(), store)
    };
    let end = (HASH_SLOTS / 3 - 1).to_string();
    tokio::task::block_in_place(|| {
        for node in cluster.nodes() {
            let mut cli = node.cli();
            cli.command(&["CLUSTER", "DELSLOTSRANGE", "0", &end])
                .expect_ok();
        }
        wait_until("nobody to have the slots", || {
            let slots = cluster.node(1).cli().command(&["CLUSTER", "SLOTS"]);
            slots.array().len() == 2
        });
    });
    // One store that knows the old map, and a fresh one.
    let fresh = patient(cluster.urls()).connect().await.unwrap();
    let fresh = with_error_log(per_user(), fresh);
    for (limiter, failures) in [(limiter, failures), fresh] {
        let mut outcomes = Vec::new();
        for number in 0..24 {
            let name = format!("user-{number}");
            let decision = limiter.check("api", &user(&name)).await;
            outcomes.push(decision.outcome());
        }
        assert!(outcomes.contains(&Outcome::Allowed), "{outcomes:?}");
        assert!(outcomes.contains(&Outcome::FailedClosed), "{outcomes:?}");
        let reasons = failures.reasons();
        let is_down = |reason: &Reason| *reason == reason::CLUSTER_DOWN;
        assert!(reasons.iter().all(is_down), "{failures:?}");
    }
}
