//! Denials over several slots: what stays charged, and how many calls they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::{Decision, RequestContext, RuleSets};
use fluxgate_redis::RedisStoreBuilder;
use fluxgate_testkit::{RedisCluster, Stopwatch};
use tokio::time::{Instant, sleep};

use crate::support::{Bench, RECOVERY, SLACK, patient, rules, until_async};

/// The capacity of a user. 50 units return each second, so no bucket is full again, and no key
/// expires, while a test runs.
const CAPACITY: u64 = 10_000;

/// A bucket per user, and a global limit of one unit that never returns.
fn user_and_all() -> RuleSets {
    rules(&format!(
        "
rule_sets:
  api:
    on_error: deny
    rules:
      - {{ id: r, match: {{ path: [\"/user\", \"/both\"] }}, scope: per_user, bands: [ {{ capacity: {CAPACITY}, window: 200s }} ] }}
      - {{ id: all, match: {{ path: [\"/both\"] }}, scope: global, algorithm: fixed_window, bands: [ {{ capacity: 1, window: 300d }} ] }}
"
    ))
}

fn bench(store: RedisStoreBuilder) -> Bench {
    Bench::new(user_and_all(), store)
}

async fn at(bench: &Bench, path: &str, user: &str, cost: u64) -> Decision {
    let context = RequestContext::builder().user(user).path(path).cost(cost);

    bench.limiter.check("api", &context.build()).await
}

fn calls(cluster: &RedisCluster) -> u64 {
    let of_node = |node: &fluxgate_testkit::RedisServer| {
        let mut cli = node.cli();
        cli.calls("evalsha") + cli.calls("eval")
    };
    cluster.nodes().iter().map(of_node).sum()
}

/// Two processes send requests that one rule denies; the bucket of the other rule
/// still refills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_refills_while_another_rule_denies_everything() {
    let cluster = RedisCluster::start(3);
    let benches = [(); 2].map(|()| bench(patient(cluster.urls()).near_cache(false)));
    assert!(at(&benches[0], "/both", "first", 1).await.allowed());
    assert!(at(&benches[0], "/user", "ann", CAPACITY).await.allowed());
    let is_over = Arc::new(AtomicBool::new(false));
    let watch = Stopwatch::start();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..16 {
        let (bench, is_over) = (benches[client % 2].clone(), Arc::clone(&is_over));
        tasks.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                assert!(!at(&bench, "/both", "ann", 1).await.allowed());
            }
        });
    }
    // 50 per second; some are behind by the time that the first charges stood.
    until_async("half of what is due in two seconds", async || {
        benches[0].left("ann").await >= 50
    })
    .await;
    let took = watch.elapsed();
    is_over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert!(took < RECOVERY + SLACK, "{took:?}");
}

/// Even a fresh store, which knows no denial, leaves nothing charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unexpected_denial_changes_nothing() {
    let cluster = RedisCluster::start(3);
    let store = || patient(cluster.urls()).near_cache(false);
    let first = bench(store());
    assert!(at(&first, "/both", "first", 1).await.allowed());
    assert!(at(&first, "/user", "ann", CAPACITY).await.allowed());
    let full_at = async || {
        let keys = cluster.nodes().iter().flat_map(|node| node.cli().keys("*"));
        let key = keys.filter(|key| key.contains("ann")).collect::<Vec<_>>();
        let [key] = &key[..] else { panic!("{key:?}") };
        let node = cluster.node_of_hash_slot(fluxgate_testkit::hash_slot_of(key));
        cluster.node(node).cli().command(&["GET", key]).text()
    };
    let before = full_at().await;
    while first.left("ann").await < 5 {
        sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..5 {
        let fresh = bench(store());
        assert!(!at(&fresh, "/both", "ann", 1).await.allowed());
        assert_eq!(full_at().await, before);
    }
}

/// A known denial is charged nowhere, and soon no request is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_denial_sends_no_request_and_charges_nothing() {
    let cluster = RedisCluster::start(3);
    let bench = bench(patient(cluster.urls()));
    assert!(at(&bench, "/both", "first", 1).await.allowed());
    // Now every node that is asked below has the script.
    assert!(at(&bench, "/user", "bob", 1).await.allowed());
    // A denial is remembered for a second.
    let (mut quick, mut tries) = (0, 0);
    while quick < 3 {
        tries += 1;
        assert!(tries < 60, "it never takes less than a second");
        let start = Instant::now();
        // Charged, denied, undone; then only peeked at.
        assert!(!at(&bench, "/both", "ann", 1).await.allowed());
        assert!(!at(&bench, "/both", "ann", 1).await.allowed());
        let before = calls(&cluster);
        for _ in 0..50 {
            let decision = at(&bench, "/both", "ann", 1).await;
            let violated: Vec<_> = decision.violated().map(|it| it.to_string()).collect();
            assert_eq!(violated, ["all/b0"]);
        }
        let asked = calls(&cluster) - before;
        // For another user, only the rule without a cached denial decides.
        assert!(!at(&bench, "/both", "bob", 1).await.allowed());
        let of_bob = calls(&cluster) - before - asked;
        // The rule that denied last decides first, so nothing is charged.
        assert!(!at(&bench, "/both", "ann", CAPACITY + 1).await.allowed());
        let before = calls(&cluster);
        assert!(!at(&bench, "/both", "ann", 1).await.allowed());
        let of_ann = calls(&cluster) - before;
        if start.elapsed() < Duration::from_millis(900) {
            assert_eq!((asked, of_bob, of_ann), (0, 1, 1));
            quick += 1;
        }
        sleep(Duration::from_millis(1_050)).await;
    }
}
