//! Budgets: what is used and what is reserved are together at most the limit, and what was
//! used above it is paid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::{Limiter, MemoryStore, RequestContext, RuleSets, Settlement, Store};
use fluxgate_testkit::{RedisCluster, RedisServer};
use tokio::task::JoinSet;

use super::MINUTE;
use crate::support::{ALGORITHMS, patient, rules, store_at};

const LIMIT: u64 = 1_000;
const CLIENTS: u64 = 32;
const STEPS: u64 = 50;
/// The time in which a bucket refills one unit. None does so during a test.
const SECONDS_PER_UNIT: u64 = 300 * 86_400 / LIMIT;

/// One budget for each user and one for each address: in different slots of a cluster.
fn budgets(algorithm: &str, limit: u64) -> RuleSets {
    let bands = format!("algorithm: {algorithm}, bands: [ {{ capacity: {limit}, window: 300d }} ]");
    rules(&format!(
        "rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: user, scope: per_user, {bands} }}, \
         {{ id: ip, scope: per_ip, {bands} }} ] }} }}"
    ))
}

fn request(units: u64) -> RequestContext<'static> {
    let context = RequestContext::builder().user("ann").ip([10, 0, 0, 1]);
    context.cost(units).hold(MINUTE).build()
}

/// Returns what is used of each budget, also above the limit.
async fn used<S: Store>(limiter: &Limiter<S>, algorithm: &str) -> [u64; 2] {
    let is_bucket = algorithm.ends_with("bucket");
    if !is_bucket {
        // Counts are kept, so a larger limit shows them.
        let larger = budgets(algorithm, 10 * LIMIT);
        limiter.replace_rules(larger).await.unwrap();
    }
    let mut used = [0; 2];
    for (used, (rule, identity)) in used.iter_mut().zip([("user", "ann"), ("ip", "10.0.0.1")]) {
        let state = limiter.state("api", rule, &[identity]).await.unwrap();
        *used = match is_bucket {
            true => state[0].reset_after.as_secs().div_ceil(SECONDS_PER_UNIT),
            false => 10 * LIMIT - state[0].remaining,
        };
    }
    limiter
        .replace_rules(budgets(algorithm, LIMIT))
        .await
        .unwrap();
    used
}

/// A sequence of numbers, another one for each seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Clients reserve and settle at random, some never. What is used and reserved is counted
/// after the reply to a reservation and before a settlement is sent, so it is never more
/// than what the store counts.
async fn reserve_and_settle<S: Store + 'static>(limiter: &Limiter<S>) -> u64 {
    let committed = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for client in 1..=CLIENTS {
        let (limiter, committed) = (limiter.clone(), Arc::clone(&committed));
        clients.spawn(async move {
            let mut numbers = Numbers(client.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for _ in 0..STEPS {
                let units = 1 + numbers.below(60);
                let decision = limiter.check("api", &request(units)).await;
                let Some(id) = decision.hold() else {
                    assert_eq!(decision.outcome().name(), "denied");
                    continue;
                };
                let now = committed.fetch_add(units, Ordering::SeqCst) + units;
                assert!(now <= LIMIT, "{now} are used or reserved");
                let cost = match numbers.below(32) {
                    0 => continue,
                    1..=8 => numbers.below(units.min(4) + 1),
                    _ => 0,
                };
                committed.fetch_sub(units - cost, Ordering::SeqCst);
                let settled = limiter.settle(id, Settlement::Cost(cost)).await;
                let settled = settled.unwrap().unwrap();
                assert_eq!((settled.charged, settled.uncharged), (cost, 0));
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    committed.load(Ordering::SeqCst)
}

/// Clients use more than they reserved, and then more than a band may owe.
async fn overdraw<S: Store + 'static>(limiter: &Limiter<S>, algorithm: &str) {
    let reserve = async |units| limiter.check("api", &request(units)).await.hold();
    let last = reserve(10).await.unwrap();
    let mut reserved = Vec::new();
    for client in 0..CLIENTS {
        reserved.push((client, reserve(10).await.unwrap()));
    }
    let mut clients = JoinSet::new();
    for (client, id) in reserved {
        let limiter = limiter.clone();
        clients.spawn(async move {
            let cost = Settlement::Cost(20 + client);
            let settled = limiter.settle(id, cost).await.unwrap().unwrap();
            assert_eq!((settled.charged, settled.uncharged), (20 + client, 0));
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let all = CLIENTS * 20 + CLIENTS * (CLIENTS - 1) / 2 + 10;
    assert!(all > LIMIT);
    assert_eq!(used(limiter, algorithm).await, [all; 2], "{algorithm}");
    assert_eq!(reserve(1).await, None, "the debt is not paid");
    // No band owes more than its capacity.
    let settled = limiter.settle(last, Settlement::Cost(5_000)).await;
    let settled = settled.unwrap().unwrap();
    let charged = 2 * LIMIT - all + 10;
    assert_eq!(
        (settled.charged, settled.uncharged),
        (charged, 5_000 - charged)
    );
    assert_eq!(used(limiter, algorithm).await, [2 * LIMIT; 2]);
}

async fn run<S: Store + 'static>(algorithm: &str, store: impl AsyncFn() -> S) {
    let limiter = Limiter::new(budgets(algorithm, LIMIT), store().await);
    let committed = reserve_and_settle(&limiter).await;
    assert!(committed > LIMIT / 2, "{algorithm}: only {committed}");
    assert_eq!(used(&limiter, algorithm).await, [committed; 2]);
    limiter.reset_set("api").await.unwrap();
    overdraw(&limiter, algorithm).await;
    limiter.reset_set("api").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_memory_what_is_used_and_reserved_is_at_most_the_limit() {
    for algorithm in ALGORITHMS {
        run(algorithm, async || MemoryStore::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_a_server_what_is_used_and_reserved_is_at_most_the_limit() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        run(algorithm, async || {
            store_at(server.url()).connect().await.unwrap()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_a_cluster_what_is_used_and_reserved_is_at_most_the_limit() {
    let cluster = RedisCluster::start(3);
    for algorithm in ALGORITHMS {
        let store = || patient(cluster.urls()).near_cache(false);
        run(algorithm, async || store().connect().await.unwrap()).await;
    }
}
