//! Requests over several slots that fail half way.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{Limiter, Outcome, RequestContext, RuleSets};
use fluxgate_redis::{HashKeys, HashSecret, RedisStore, RedisStoreBuilder};
use fluxgate_testkit::{FaultProxy, RedisCluster, RedisServer, ReplyFault, wait_until};

use crate::support::{ErrorLog, patient, rules, until_async, used, with_error_log};

/// Missed by a node that hangs, and by no other on a busy machine.
const DEADLINE: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(10);

/// Three rules, whose keys are on nodes 0, 1 and 2 for these identities.
struct ThreeNodes {
    cluster: RedisCluster,
    user: String,
    address: [u8; 4],
    api_key: String,
}

impl ThreeNodes {
    async fn start() -> Self {
        let cluster = RedisCluster::start(3);
        let store = patient(cluster.urls())
            .hash_keys(HashKeys::None, HashSecret::new(b""))
            .connect();
        let limiter = Limiter::new(three("deny", "enforce", 3), store.await.unwrap());
        let mut found = (None, None, None);
        for number in 0..=255 {
            let user = format!("user-{number}.");
            let api_key = format!("key-{number}.");
            let address = [10, 0, 0, number];
            let context = RequestContext::builder().user(user.clone()).ip(address);
            let context = context.api_key(api_key.clone()).build();
            let _ = limiter.check("api", &context).await;
            let has = |node: usize, part: &[u8]| has_key(cluster.node(node), part);
            if found.0.is_none() && has(0, user.as_bytes()) {
                found.0 = Some(user);
            }
            if found.1.is_none() && has(1, &address) {
                found.1 = Some(address);
            }
            if found.2.is_none() && has(2, api_key.as_bytes()) {
                found.2 = Some(api_key);
            }
            if let (Some(user), Some(address), Some(api_key)) = found.clone() {
                for node in cluster.nodes() {
                    node.cli().command(&["FLUSHALL"]).expect_ok();
                }
                return Self {
                    cluster,
                    user,
                    address,
                    api_key,
                };
            }
        }
        panic!("256 identities of each kind, and none on some node");
    }

    fn context(&self) -> RequestContext<'_> {
        let context = RequestContext::builder().user(&*self.user);
        context.ip(self.address).api_key(&*self.api_key).build()
    }

    fn store(&self) -> RedisStoreBuilder {
        patient(self.cluster.urls())
            .hash_keys(HashKeys::None, HashSecret::new(b""))
            .near_cache(false)
    }

    async fn limiter(
        &self,
        rules: RuleSets,
        deadline: Duration,
    ) -> (Limiter<RedisStore>, ErrorLog) {
        let store = self.store().deadline(deadline).connect().await.unwrap();
        with_error_log(rules, store)
    }

    /// Returns what is charged to the rule on node 0, read by another store.
    async fn used_of_first(&self) -> u64 {
        let store = self.store().connect().await.unwrap();
        let limiter = Limiter::new(three("deny", "enforce", 3), store);
        used(&limiter, "first", &[&self.user]).await
    }

    async fn outcome(&self, limiter: &Limiter<RedisStore>) -> Outcome {
        let decision = limiter.check("api", &self.context()).await;
        decision.outcome()
    }
}

fn has_key(node: &RedisServer, part: &[u8]) -> bool {
    let reply = node.cli().command(&["KEYS", "*"]);
    let mut keys = reply.array().iter();
    keys.any(|key| key.bytes().windows(part.len()).any(|bytes| bytes == part))
}

/// `first` on node 0, `second` on node 1, `third` on node 2.
fn three(on_error: &str, third_mode: &str, second: u64) -> RuleSets {
    rules(&format!(
        "
rule_sets:
  api:
    on_error: {on_error}
    rules:
      - {{ id: first, scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: 1000, window: 300d }} ] }}
      - {{ id: second, scope: per_ip, algorithm: fixed_window, bands: [ {{ capacity: {second}, window: 300d }} ] }}
      - {{ id: third, mode: {third_mode}, scope: per_api_key, algorithm: fixed_window, bands: [ {{ capacity: 1000, window: 300d }} ] }}
"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_holds_and_is_undone_once_when_a_later_shard_is_dead() {
    let nodes = ThreeNodes::start().await;
    // Failed requests are admitted, denied ones must not be.
    let (limiter, failures) = nodes.limiter(three("allow", "enforce", 3), LONG).await;
    for _ in 0..3 {
        assert_eq!(nodes.outcome(&limiter).await, Outcome::Allowed);
    }
    nodes.cluster.kill_node(2);
    for _ in 0..8 {
        assert_eq!(nodes.outcome(&limiter).await, Outcome::Denied);
    }
    assert_eq!(nodes.used_of_first().await, 3);
    assert_eq!(failures.reasons(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_rule_on_a_dead_shard_denies_nothing() {
    let nodes = ThreeNodes::start().await;
    let (limiter, failures) = nodes.limiter(three("deny", "shadow", 1000), LONG).await;
    assert_eq!(nodes.outcome(&limiter).await, Outcome::Allowed);
    nodes.cluster.kill_node(2);
    for _ in 0..8 {
        assert_eq!(nodes.outcome(&limiter).await, Outcome::Allowed);
    }
    assert_eq!(nodes.used_of_first().await, 9);
    assert_eq!(failures.reasons(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_on_other_shards_are_undone_when_one_hangs() {
    let nodes = ThreeNodes::start().await;
    let (limiter, failures) = nodes
        .limiter(three("deny", "enforce", 1000), DEADLINE)
        .await;
    nodes.cluster.node(2).pause();
    for _ in 0..5 {
        assert_eq!(nodes.outcome(&limiter).await, Outcome::FailedClosed);
        // The same store still reaches the other nodes.
        let state = limiter.state("api", "first", &[&nodes.user]).await;
        assert!(state.is_ok(), "{state:?}");
    }
    assert_eq!(failures.reasons()[0], Reason::TIMEOUT);
    until_async("everything is given back", async || {
        nodes.used_of_first().await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_is_undone() {
    let nodes = Arc::new(ThreeNodes::start().await);
    let (limiter, _) = nodes.limiter(three("deny", "enforce", 1000), LONG).await;
    let (mut first, mut second) = (nodes.cluster.node(0).cli(), nodes.cluster.node(1).cli());
    second
        .command(&["CLIENT", "PAUSE", "60000", "WRITE"])
        .expect_ok();
    let asking = tokio::spawn({
        let (nodes, limiter) = (Arc::clone(&nodes), limiter.clone());
        async move { nodes.outcome(&limiter).await }
    });
    // The second decides after the first has answered.
    wait_until("the second to be asked", || {
        let clients = second.command(&["CLIENT", "LIST"]).text();
        clients.lines().any(|client| client.contains(" flags=b "))
    });
    assert_eq!(first.dbsize(), 1);
    asking.abort();
    wait_until("that to be given back", || first.dbsize() == 0);
    second.command(&["CLIENT", "UNPAUSE"]).expect_ok();
    assert!(asking.await.unwrap_err().is_cancelled());
}

/// Makes node 0 announce the address of the proxy.
fn proxy_before_node_0(cluster: &RedisCluster) -> FaultProxy {
    let proxy = FaultProxy::start(cluster.node(0).addr());
    let port = proxy.port().to_string();
    let mut cli = cluster.node(0).cli();
    cli.command(&["CONFIG", "SET", "cluster-announce-port", &port])
        .expect_ok();
    for node in cluster.nodes() {
        wait_until("every node to know of the proxy", || {
            let nodes = node.cli().command(&["CLUSTER", "NODES"]).text();
            nodes.contains(&format!(":{port}@"))
        });
    }
    proxy
}

/// Bytes that only the argument of an undo has: one key, and the number of the
/// operation.
const UNDO: &[u8] = b"\x01\x00\x00\x00\x04";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_whose_reply_is_lost_is_not_repeated() {
    let nodes = ThreeNodes::start().await;
    let proxy = tokio::task::block_in_place(|| proxy_before_node_0(&nodes.cluster));
    let (limiter, _) = nodes.limiter(three("deny", "enforce", 3), LONG).await;
    for _ in 0..3 {
        assert_eq!(nodes.outcome(&limiter).await, Outcome::Allowed);
    }
    proxy.fault_reply_to(UNDO, ReplyFault::SwallowAndClose);
    assert_eq!(nodes.outcome(&limiter).await, Outcome::Denied);
    assert_eq!(proxy.faults_pending(), 0);
    assert_eq!(nodes.used_of_first().await, 3);
    until_async("the store is as before", async || {
        nodes.outcome(&limiter).await == Outcome::Denied
    })
    .await;
    assert_eq!(nodes.used_of_first().await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_whose_reply_is_lost_stays_and_is_not_repeated() {
    let nodes = ThreeNodes::start().await;
    let proxy = tokio::task::block_in_place(|| proxy_before_node_0(&nodes.cluster));
    let (limiter, failures) = nodes.limiter(three("deny", "enforce", 3), LONG).await;
    assert_eq!(nodes.outcome(&limiter).await, Outcome::Allowed);
    proxy.fault_reply_to("EVALSHA", ReplyFault::SwallowAndClose);
    assert_eq!(nodes.outcome(&limiter).await, Outcome::FailedClosed);
    assert_eq!(failures.reasons().len(), 1);
    assert_eq!(nodes.used_of_first().await, 2);
    // No other node got a call.
    until_async("the store is as before", async || {
        nodes.outcome(&limiter).await == Outcome::Allowed
    })
    .await;
    assert_eq!(
        used(&limiter, "second", &[&ip_text(nodes.address)]).await,
        2
    );
}

fn ip_text(address: [u8; 4]) -> String {
    address.map(|octet| octet.to_string()).join(".")
}
