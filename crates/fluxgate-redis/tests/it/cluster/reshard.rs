//! Slots that move under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{Limiter, Outcome, RequestContext};
use fluxgate_redis::RedisStore;
use fluxgate_redis::reason;
use fluxgate_testkit::{RedisCluster, wait_for, wait_until};

use super::{Mover, errors, slot_of_keys, wait_until_settled};
use crate::load::{LoadProcess, Tally, load, two_bands};
use crate::support::{
    RECOVERY, SLACK, patient, rules, until, until_async, used, user, with_error_log,
};

/// Moves a slot to the next node, and stops in each state until clients have met
/// it.
fn move_to_next_node(cluster: &RedisCluster, slot: u16) {
    let to = (cluster.node_of_hash_slot(slot) + 1) % cluster.len();
    let moving = cluster.begin_move(slot, to);
    for code in ["TRYAGAIN", "ASK"] {
        moving.move_keys(1);
        let before = errors(cluster, code);
        wait_until("a client to meet a slot that moves", || {
            errors(cluster, code) > before
        });
    }
    moving.finish();
    wait_until_settled(cluster);
}

fn two_processes_on_a_slot_that_moves(algorithm: &str) {
    let cluster = RedisCluster::start(3);
    let pause = Duration::from_millis(40);
    let start = |_| LoadProcess::start_endless(&cluster.urls(), algorithm, 60, pause);
    let mut processes = [0, 1].map(start);
    processes.iter_mut().for_each(LoadProcess::begin);
    let slot = wait_for("the first key", || slot_of_keys(&cluster, "ann"));
    // The processes run until their standard input is closed.
    let mut moves = 0;
    while moves < 2 || errors(&cluster, "MOVED") == 0 {
        assert!(moves < 30, "no client asks a node whose slot has moved");
        move_to_next_node(&cluster, slot);
        moves += 1;
    }
    let mut sum = Tally::default();
    for process in processes {
        sum.add(process.wait());
    }
    assert_eq!((sum.admitted, sum.failed), (1000, 0));
}

#[test]
fn two_processes_admit_exactly_the_limit_of_moving_windows() {
    two_processes_on_a_slot_that_moves("sliding_window");
}

#[test]
fn two_processes_admit_exactly_the_limit_of_moving_logs() {
    two_processes_on_a_slot_that_moves("sliding_log");
}

#[test]
fn two_processes_admit_exactly_the_limit_of_moving_buckets() {
    two_processes_on_a_slot_that_moves("token_bucket");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_stuck_between_two_nodes_fails_in_time_and_recovers() {
    let cluster = RedisCluster::start(3);
    // Missed by all while the slot is stuck, and by none before and after that.
    let deadline = Duration::from_secs(3);
    let store = || patient(cluster.urls()).deadline(deadline).connect();
    let stores = [store().await.unwrap(), store().await.unwrap()];
    let with_error_log = stores.map(|store| with_error_log(two_bands("fixed_window", 1000), store));
    for (limiter, _) in &with_error_log {
        let first = limiter.check("api", &user("ann")).await;
        assert_eq!(first.outcome(), Outcome::Allowed);
    }
    let slot = slot_of_keys(&cluster, "ann").unwrap();
    let to = (cluster.node_of_hash_slot(slot) + 1) % 3;
    let moving = cluster.begin_move(slot, to);
    assert_eq!(moving.move_keys(1), 1);
    // Each request tries until its deadline, and then `on_error` applies.
    let pause = Duration::from_millis(1);
    let loads = with_error_log
        .clone()
        .map(|(limiter, _)| load(limiter, 8, 2, pause));
    let [one, two] = loads;
    let (one, two) = tokio::join!(one, two);
    for tally in [one, two] {
        assert_eq!((tally.admitted, tally.denied, tally.failed), (0, 0, 16));
    }
    for (_, failures) in &with_error_log {
        let mut reasons = failures.reasons();
        // The last node may have had no time left.
        reasons.retain(|reason| *reason != Reason::TIMEOUT);
        assert!(!reasons.is_empty());
        assert!(reasons.iter().all(|reason| *reason == reason::CLUSTER_DOWN));
    }
    moving.finish();
    for (limiter, _) in &with_error_log {
        let recovered = until_async("the slot is served again", async || {
            let decision = limiter.check("api", &user("ann")).await;
            decision.outcome() == Outcome::Allowed
        });
        assert!(recovered.await < RECOVERY + SLACK);
    }
    let limiter = &with_error_log[0].0;
    assert_eq!(used(limiter, "r", &["ann"]).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_deadline_while_slots_move_never_admits_more() {
    let cluster = Arc::new(RedisCluster::start(3));
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::builder(cluster.urls()).build().unwrap();
        limiters.push(Limiter::new(two_bands("sliding_log", 1000), store));
    }
    let mut first = Tally::default();
    until_async("somebody is let in", async || {
        let decision = limiters[0].check("api", &user("ann")).await;
        first.count(decision.outcome());
        decision.allowed()
    })
    .await;
    let slot = slot_of_keys(&cluster, "ann").unwrap();
    let mover = Mover::start(&cluster, slot);
    let pause = Duration::from_millis(40);
    let mut sum = first;
    while mover.moves() < 2 {
        let (one, two) = tokio::join!(
            load(limiters[0].clone(), 32, 30, pause),
            load(limiters[1].clone(), 32, 30, pause),
        );
        sum.add(one);
        sum.add(two);
    }
    tokio::task::block_in_place(|| mover.stop());
    assert!(sum.admitted <= 1000, "{sum:?}");
    assert!(sum.admitted > 0, "{sum:?}");
    // Admitted requests are charged, and failed ones may be.
    let patient = patient(cluster.urls()).connect().await.unwrap();
    let patient = Limiter::new(two_bands("sliding_log", 1000), patient);
    let charged = used(&patient, "r", &["ann"]).await;
    assert!(
        (sum.admitted..=sum.admitted + sum.failed).contains(&charged),
        "{charged} of {sum:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_several_slots_stay_atomic_while_one_moves() {
    let cluster = Arc::new(RedisCluster::start(3));
    let rules = rules(
        "
rule_sets:
  api:
    on_error: deny
    rules:
      - { id: wide, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 1000, window: 300d } ] }
      - { id: log, scope: global, algorithm: sliding_log, bands: [ { capacity: 1000, window: 300d } ] }
      - { id: narrow, scope: per_ip, algorithm: fixed_window, bands: [ { capacity: 300, window: 300d } ] }
",
    );
    let (limiter, failures) = with_error_log(
        rules,
        patient(cluster.urls())
            .near_cache(false)
            .connect()
            .await
            .unwrap(),
    );
    let context = || {
        let context = RequestContext::builder().user("ann");
        context.ip([10, 0, 0, 1]).build()
    };
    let _ = limiter.check("api", &context()).await;
    let slot = slot_of_keys(&cluster, "ann").unwrap();
    let mover = Mover::start(&cluster, slot);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let (limiter, is_over) = (limiter.clone(), Arc::clone(&is_over));
        let context = context();
        tasks.push(tokio::spawn(async move {
            let mut tally = Tally::default();
            for number in 0.. {
                // Enough to reach the limit, and until the slot has moved.
                if number >= 30 && is_over.load(Ordering::Relaxed) {
                    break;
                }
                let decision = limiter.check("api", &context).await;
                tally.count(decision.outcome());
            }
            tally
        }));
    }
    until("the slot has moved", || mover.moves() > 1).await;
    is_over.store(true, Ordering::Relaxed);
    let mut sum = Tally {
        admitted: 1,
        ..Tally::default()
    };
    for task in tasks {
        sum.add(task.await.unwrap());
    }
    tokio::task::block_in_place(|| mover.stop());
    assert_eq!((sum.admitted, sum.failed), (300, 0), "{failures:?}");
    for (rule, identity) in [
        ("wide", vec!["ann"]),
        ("log", vec![]),
        ("narrow", vec!["10.0.0.1"]),
    ] {
        assert_eq!(used(&limiter, rule, &identity).await, 300, "{rule}");
    }
}
