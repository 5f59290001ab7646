//! Clusters that are not quite as one expects.

use std::time::Duration;

use fluxgate_core::{Outcome, Reason, RuleSets};
use fluxgate_redis::reason;
use fluxgate_redis::{RedisStore, Topology};
use fluxgate_testkit::{RedisCluster, RedisServer, SLOTS, ports, wait_until};
use tokio::time::Instant;

use crate::support::{patient, rules, user, watched};

fn per_user() -> RuleSets {
    rules(
        "rule_sets: { api: { on_error: deny, rules: [ { id: r, scope: per_user, \
         bands: [ { capacity: 100000, window: 300d } ] } ] } }",
    )
}

/// Asks for so many users that every node has some.
async fn expect_all_allowed(store: RedisStore) {
    let (limiter, failures) = watched(per_user(), store);
    for number in 0..24 {
        let name = format!("user-{number}");
        let decision = limiter.check("api", &user(&name)).await.unwrap();
        assert_eq!(decision.outcome(), Outcome::Allowed, "{failures:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_url_is_enough_and_seeds_may_be_dead_or_deaf() {
    let cluster = RedisCluster::start(3);
    let one = patient([cluster.node(1).url()]);
    expect_all_allowed(one.connect().await.unwrap()).await;
    // Nobody listens there.
    let free = ports::free();
    let dead = format!("redis://{}", free.addr());
    let urls = [dead.clone(), cluster.node(2).url()];
    for topology in [Topology::Auto, Topology::Cluster] {
        let store = patient(urls.clone()).topology(topology);
        expect_all_allowed(store.connect().await.unwrap()).await;
    }
    // Somebody listens and never answers.
    let deaf = RedisServer::start();
    deaf.pause();
    let urls = [deaf.url(), dead, cluster.node(2).url()];
    let store = patient(urls).topology(Topology::Cluster);
    let start = Instant::now();
    expect_all_allowed(store.connect().await.unwrap()).await;
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_requests_ask_for_the_map_once() {
    let cluster = RedisCluster::start(3);
    let node = cluster.node(0);
    node.cli().command(&["CONFIG", "RESETSTAT"]).expect_ok();
    let store = patient([node.url()]).topology(Topology::Cluster);
    let (limiter, failures) = watched(per_user(), store.build().unwrap());
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let name = format!("user-{number}");
                limiter.check("api", &user(&name)).await.unwrap().outcome()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Outcome::Allowed, "{failures:?}");
    }
    assert_eq!(node.cli().calls("cluster|slots"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_tell_no_host_are_where_we_asked() {
    for kind in ["unknown-endpoint", "hostname"] {
        let cluster = RedisCluster::start_with(3, |node| {
            node.config(format!("cluster-preferred-endpoint-type {kind}"))
        });
        let store = patient([cluster.node(0).url()]).connect().await.unwrap();
        let (limiter, failures) = watched(per_user(), store);
        for number in 0..24 {
            if number == 12 {
                // Sent on by a node that does not say where to.
                tokio::task::block_in_place(|| {
                    let slot = super::slot_of_keys(&cluster, "user-1.").unwrap();
                    cluster.move_slot(slot, (cluster.node_of_slot(slot) + 1) % 3);
                });
            }
            let name = format!("user-{}.", number % 12);
            let decision = limiter.check("api", &user(&name)).await.unwrap();
            assert_eq!(decision.outcome(), Outcome::Allowed, "{failures:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_nobody_has_are_a_cluster_that_is_down() {
    let cluster = RedisCluster::start(3);
    let (limiter, failures) = {
        let store = patient(cluster.urls()).connect().await.unwrap();
        watched(per_user(), store)
    };
    let end = (SLOTS / 3 - 1).to_string();
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
    // One who knows the map from before, and one who does not.
    let fresh = patient(cluster.urls()).connect().await.unwrap();
    let fresh = watched(per_user(), fresh);
    for (limiter, failures) in [(limiter, failures), fresh] {
        let mut outcomes = Vec::new();
        for number in 0..24 {
            let name = format!("user-{number}");
            let decision = limiter.check("api", &user(&name)).await.unwrap();
            outcomes.push(decision.outcome());
        }
        assert!(outcomes.contains(&Outcome::Allowed), "{outcomes:?}");
        assert!(outcomes.contains(&Outcome::FailedClosed), "{outcomes:?}");
        let reasons = failures.reasons();
        let is_down = |reason: &Reason| *reason == reason::CLUSTER_DOWN;
        assert!(reasons.iter().all(is_down), "{failures:?}");
    }
}
