//! The store as a limiter uses it, on real servers.

use fluxgate_core::{Limiter, Outcome, RequestContext};
use fluxgate_redis::{RedisStore, Topology};
use fluxgate_testkit::{RedisCluster, RedisServer};

use crate::support::{one_band, patient, rules, with_error_log};

/// Several rules with several bands, which all apply to every request.
const THREE_RULES: &str = "
rule_sets:
  api:
    rules:
      - id: per-user
        scope: per_user
        bands: [ { id: burst, capacity: 10, window: 1s }, { id: day, capacity: 1000, window: 1d } ]
      - id: per-ip
        scope: per_ip
        algorithm: sliding_window
        bands: [ { id: minute, capacity: 100, window: 1m }, { id: hour, capacity: 1000, window: 1h } ]
      - id: all
        scope: global
        algorithm: fixed_window
        bands: [ { id: minute, capacity: 1000, window: 1m }, { id: hour, capacity: 10000, window: 1h } ]
";

#[tokio::test]
async fn a_request_with_three_rules_of_two_bands_is_one_command() {
    let server = RedisServer::start();
    let store = patient([server.url()]).connect().await.unwrap();
    let limiter = Limiter::new(rules(THREE_RULES), store);
    let context = RequestContext::builder()
        .user("ann")
        .ip([10, 0, 0, 1])
        .build();
    let first = limiter.check("api", &context).await;
    assert_eq!(first.outcome(), Outcome::Allowed);
    server.cli().command(&["CONFIG", "RESETSTAT"]).expect_ok();
    for _ in 0..5 {
        let decision = limiter.check("api", &context).await;
        assert!(decision.allowed());
    }
    let mut cli = server.cli();
    assert_eq!(cli.calls("evalsha"), 5);
    let stats = cli.command(&["INFO", "commandstats"]);
    let stats = stats.text().to_owned();
    // The list includes the script's own commands; nothing else was sent.
    let sent: Vec<&str> = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| {
            !matches!(
                *name,
                "get" | "mget" | "psetex" | "time" | "info" | "config|resetstat"
            )
        })
        .collect();
    assert_eq!(sent, ["evalsha"], "{stats}");
}

/// Many clients of two stores, as in two processes, on one key.
async fn admitted(stores: [RedisStore; 2], algorithm: &str) -> usize {
    let limiters =
        stores.map(|store| with_error_log(one_band("deny", algorithm, 1000, "300d"), store).0);
    let mut tasks = Vec::new();
    for client in 0..64 {
        let limiter = limiters[client % 2].clone();
        tasks.push(tokio::spawn(async move {
            let context = RequestContext::builder().user("ann").build();
            let mut admitted = 0;
            for _ in 0..40 {
                let decision = limiter.check("api", &context).await;
                assert_ne!(decision.outcome(), Outcome::FailedClosed);
                admitted += usize::from(decision.allowed());
            }
            admitted
        }));
    }
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_with_64_clients_admit_exactly_the_limit() {
    let server = RedisServer::start();
    for algorithm in ["fixed_window", "sliding_log", "sliding_window"] {
        server.cli().command(&["FLUSHALL"]).expect_ok();
        let store = || patient([server.url()]).connect();
        let stores = [store().await.unwrap(), store().await.unwrap()];
        assert_eq!(admitted(stores, algorithm).await, 1000, "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_with_64_clients_admit_exactly_the_limit_on_a_cluster() {
    let cluster = RedisCluster::start(3);
    for algorithm in ["fixed_window", "sliding_log"] {
        let store = || patient(cluster.urls()).connect();
        let stores = [store().await.unwrap(), store().await.unwrap()];
        assert_eq!(admitted(stores, algorithm).await, 1000, "{algorithm}");
        let store = patient(cluster.urls()).topology(Topology::Cluster);
        let limiter = Limiter::new(
            one_band("deny", algorithm, 1000, "300d"),
            store.connect().await.unwrap(),
        );
        assert_eq!(limiter.reset_rule("api", "r").await.unwrap(), 1);
    }
}

#[tokio::test]
async fn rules_in_different_slots_are_charged_together_or_not_at_all() {
    let cluster = RedisCluster::start(3);
    let store = patient(cluster.urls()).connect().await.unwrap();
    let yaml = "
rule_sets:
  api:
    rules:
      - id: wide
        scope: per_user
        bands: [ { capacity: 10, window: 300d } ]
      - id: narrow
        scope: per_ip
        algorithm: fixed_window
        bands: [ { capacity: 3, window: 300d } ]
      - id: after
        scope: global
        algorithm: sliding_log
        bands: [ { capacity: 10, window: 300d } ]
      - id: with_error_log
        mode: shadow
        scope: per_user
        algorithm: fixed_window
        bands: [ { capacity: 2, window: 300d } ]
";
    let limiter = Limiter::new(rules(yaml), store);
    let context = RequestContext::builder().user("ann").ip([10, 0, 0, 1]);
    let context = context.build();
    let mut outcomes = Vec::new();
    for _ in 0..6 {
        let decision = limiter.check("api", &context).await;
        outcomes.push(decision.outcome());
    }
    assert_eq!(
        outcomes,
        [
            Outcome::Allowed,
            Outcome::Allowed,
            Outcome::ShadowDenied,
            Outcome::Denied,
            Outcome::Denied,
            Outcome::Denied,
        ]
    );
    for (rule, identity, left) in [
        ("wide", vec!["ann"], 7),
        ("narrow", vec!["10.0.0.1"], 0),
        ("after", vec![], 7),
        ("with_error_log", vec!["ann"], 0),
    ] {
        let state = limiter.state("api", rule, &identity).await.unwrap();
        assert_eq!(state[0].remaining, left, "{rule}");
    }
}
