//! Holds with parts in several slots of a cluster.

use std::time::Duration;

use fluxgate_core::store::Micros;
use fluxgate_core::{HoldId, Limiter, RequestContext, RuleSets, Settlement, Store};
use fluxgate_redis::{RedisStore, RedisStoreBuilder};
use fluxgate_testkit::{RedisCluster, hash_slot_of, wait_until};
use tokio::time::Instant;

use crate::support::{patient, rules, until_async};

/// Slots by user, tokens by address, and requests of everybody: in three slots.
fn three_rules(slots: u64, tokens: u64) -> RuleSets {
    rules(&format!(
        "
rule_sets:
  api:
    on_error: deny
    rules:
      - {{ id: slots, scope: per_user, algorithm: concurrency, bands: [ {{ capacity: {slots} }} ] }}
      - {{ id: tokens, scope: per_ip, algorithm: sliding_log, bands: [ {{ capacity: {tokens}, window: 300d }} ] }}
      - {{ id: shadow, mode: shadow, scope: global, algorithm: sliding_log, bands: [ {{ capacity: 1000, window: 300d }} ] }}
"
    ))
}

fn builder(cluster: &RedisCluster) -> RedisStoreBuilder {
    patient(cluster.urls()).near_cache(false)
}

async fn connect(cluster: &RedisCluster, slots: u64, tokens: u64) -> Limiter<RedisStore> {
    let store = builder(cluster).connect().await.unwrap();
    Limiter::new(three_rules(slots, tokens), store)
}

fn context(user: &str, cost: u64) -> RequestContext<'_> {
    let context = RequestContext::builder().user(user).ip([10, 0, 0, 1]);
    context.cost(cost).build()
}

async fn left(limiter: &Limiter<RedisStore>, user: &str) -> [u64; 3] {
    let of = async |rule: &str, identity: &[&str]| {
        limiter.state("api", rule, identity).await.unwrap()[0].remaining
    };
    [
        of("slots", &[user]).await,
        of("tokens", &["10.0.0.1"]).await,
        of("shadow", &[]).await,
    ]
}

fn keys(cluster: &RedisCluster) -> Vec<String> {
    let keys = cluster.nodes().iter();
    keys.flat_map(|node| node.cli().keys("*")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_settled_in_all_slots_and_leaves_nothing() {
    let cluster = RedisCluster::start(3);
    let limiter = connect(&cluster, 10, 100).await;
    let id = limiter
        .check("api", &context("ann", 4))
        .await
        .hold()
        .unwrap();
    assert_eq!(left(&limiter, "ann").await, [6, 96, 996]);
    let found = keys(&cluster);
    assert_eq!(
        found.len(),
        7,
        "three counters, their records and the list: {found:?}"
    );
    let records = found.iter().filter(|key| key.contains(&id.to_string()));
    let mut slots: Vec<_> = records.map(hash_slot_of).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 4);
    // Another process, without rules.
    let other = builder(&cluster).connect().await.unwrap();
    let minute = Micros::new(60_000_000);
    let holds = [(HoldId::from_bits(7), minute), (id, minute)];
    assert_eq!(other.renew(&holds).await.unwrap(), [false, true]);
    let settled = other
        .settle(id, Settlement::Cost(6))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((settled.charged, settled.uncharged), (6, 0));
    assert_eq!(left(&limiter, "ann").await, [10, 94, 994]);
    assert_eq!(other.settle(id, Settlement::RELEASE).await, Ok(None));
    assert_eq!(keys(&cluster).len(), 2, "the two logs");
    // Released, there is nothing left.
    let id = limiter
        .check("api", &context("bob", 4))
        .await
        .hold()
        .unwrap();
    assert!(
        other
            .settle(id, Settlement::RELEASE)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(keys(&cluster).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_request_leaves_neither_slots_nor_records() {
    let cluster = RedisCluster::start(3);
    // Each of the two enforced rules denies in turn, whichever decides first.
    for (slots, tokens) in [(10, 3), (3, 10)] {
        for node in cluster.nodes() {
            node.cli().command(&["FLUSHALL"]).expect_ok();
        }
        let limiter = connect(&cluster, slots, tokens).await;
        for _ in 0..4 {
            let decision = limiter.check("api", &context("ann", 4)).await;
            assert!(!decision.allowed() && decision.hold().is_none());
        }
        until_async("all charges are undone", async || keys(&cluster).is_empty()).await;
        assert!(
            limiter
                .check("api", &context("ann", 3))
                .await
                .hold()
                .is_some()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_were_not_reached_are_settled_later_and_only_once() {
    let cluster = RedisCluster::start(3);
    let limiter = connect(&cluster, 10, 100).await;
    // A user whose slots are on another node than the tokens.
    let node_of = |pattern: &str| {
        let nodes = cluster.nodes().iter();
        nodes
            .clone()
            .position(|node| !node.cli().keys(pattern).is_empty())
    };
    let mut found = None;
    for number in 0..100 {
        let user = format!("user-{number}.");
        let id = limiter
            .check("api", &context(&user, 4))
            .await
            .hold()
            .unwrap();
        let list = node_of(&format!("*:hold2:{{{id}}}"));
        let (slots, tokens) = (node_of(&format!("*{user}*:h")), node_of("*l25920000000"));
        if slots != tokens && list != slots {
            found = Some((user, id, slots.unwrap()));
            break;
        }
        limiter.settle(id, Settlement::RELEASE).await.unwrap();
    }
    let (user, id, slots) = found.unwrap();
    let short = builder(&cluster).deadline(Duration::from_secs(3));
    let short = short.connect().await.unwrap();
    assert!(short.renew(&[(id, Micros::new(60_000_000))]).await.unwrap()[0]);
    cluster.node(slots).pause();
    assert!(short.settle(id, Settlement::Cost(1)).await.is_err());
    assert!(short.settle(id, Settlement::Cost(1)).await.is_err());
    cluster.node(slots).resume();
    until_async("it is settled", async || {
        short.settle(id, Settlement::Cost(1)).await.is_ok()
    })
    .await;
    assert_eq!(short.settle(id, Settlement::Cost(1)).await, Ok(None));
    let [slots, tokens, _] = left(&limiter, &user).await;
    assert_eq!((slots, tokens), (10, 99));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_list_a_hold_is_not_charged() {
    let cluster = RedisCluster::start(3);
    let limiter = connect(&cluster, 10, 100).await;
    // Every list is on a node that refuses to write it.
    for node in cluster.nodes() {
        node.cli()
            .command(&["ACL", "SETUSER", "default", "-set"])
            .expect_ok();
    }
    let decision = limiter.check("api", &context("ann", 4)).await;
    assert!(!decision.allowed() && decision.hold().is_none());
    until_async("all charges are undone", async || keys(&cluster).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_and_lists_expire() {
    let cluster = RedisCluster::start(3);
    let rules = rules(
        "rule_sets: { api: { rules: [ { id: a, scope: per_user, hold: 2s, algorithm: concurrency, \
         bands: [ { capacity: 3 } ] }, { id: b, scope: per_ip, hold: 3s, algorithm: concurrency, \
         bands: [ { capacity: 3 } ] } ] } }",
    );
    let limiter = Limiter::new(rules, builder(&cluster).connect().await.unwrap());
    let mut tries = 0..10;
    loop {
        assert!(
            tries.next().is_some(),
            "it never takes less than two seconds"
        );
        let start = Instant::now();
        let decision = limiter.check("api", &context("ann", 1)).await;
        let id = decision.hold().unwrap();
        let found = keys(&cluster).len();
        let in_time = start.elapsed() < Duration::from_secs(2);
        wait_until("all to expire", || keys(&cluster).is_empty());
        assert_eq!(limiter.settle(id, Settlement::RELEASE).await, Ok(None));
        if in_time {
            assert_eq!(found, 5);
            break;
        }
    }
}
