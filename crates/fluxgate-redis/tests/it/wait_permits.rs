//! The bound on requests that wait.

use std::process::{Command, Stdio};
use std::time::Duration;

use fluxgate_core::store::WaitPermit;
use fluxgate_core::{Limiter, Outcome, RequestContext, Store};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::{RedisCluster, RedisServer, Skew, hash_slot_of};

use crate::support::{GENEROUS, patient, rules, until_async, used};

const WAIT: Duration = Duration::from_secs(60);

async fn acquire(store: &RedisStore, longest: Duration) -> Option<WaitPermit> {
    store.begin_wait(longest).await.unwrap()
}

/// Returns how many keys the servers have.
fn keys(servers: &[&RedisServer]) -> usize {
    let of_server = |server: &&RedisServer| server.cli().keys("*waits*").len();
    servers.iter().map(of_server).sum()
}

async fn bound_over_two_stores(urls: Vec<String>, servers: &[&RedisServer]) {
    let store = || patient(urls.clone()).max_cluster_waits(3).connect();
    let (one, two) = (store().await.unwrap(), store().await.unwrap());
    let mut permits = vec![acquire(&one, WAIT).await.unwrap()];
    permits.push(acquire(&two, WAIT).await.unwrap());
    permits.push(acquire(&two, WAIT).await.unwrap());
    assert!(acquire(&one, WAIT).await.is_none());
    assert!(acquire(&two, WAIT).await.is_none());
    // One is released, and taken by the other store.
    permits.pop();
    let mut got = None;
    until_async("a permit to be free again", async || {
        got = acquire(&one, WAIT).await;
        got.is_some()
    })
    .await;
    assert!(acquire(&two, WAIT).await.is_none());
    drop((permits, got));
    until_async("nothing to be left", async || keys(servers) == 0).await;
}

#[tokio::test]
async fn the_bound_holds_over_two_stores_and_leaves_no_key() {
    let server = RedisServer::start();
    bound_over_two_stores(vec![server.url()], &[&server]).await;
}

#[tokio::test]
async fn the_bound_holds_on_a_cluster() {
    let cluster = RedisCluster::start(3);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    bound_over_two_stores(cluster.urls(), &nodes).await;
}

#[tokio::test]
async fn without_a_bound_no_command_is_sent() {
    let server = RedisServer::start();
    let store = patient([server.url()]).build().unwrap();
    server.kill();
    assert!(acquire(&store, WAIT).await.is_some());
}

#[tokio::test]
async fn a_permit_whose_reply_is_lost_is_released() {
    let server = RedisServer::start();
    let store = patient([server.url()]).max_cluster_waits(1);
    let store = store.connect().await.unwrap();
    drop(acquire(&store, WAIT).await.unwrap());
    until_async("it to be free", async || keys(&[&server]) == 0).await;
    server.pause();
    // Sent, and cancelled before the reply.
    let acquiring = tokio::time::timeout(Duration::from_millis(100), acquire(&store, WAIT));
    assert!(acquiring.await.is_err());
    server.resume();
    until_async("the permit to be free", async || {
        acquire(&store, WAIT).await.is_some()
    })
    .await;
}

const URL: &str = "FLUXGATE_TEST_WAIT_URL";
#[tokio::test]
async fn the_permit_of_a_dead_process_expires() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let store = patient([server.url()]).max_cluster_waits(1);
    let store = store.connect().await.unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "wait_permits::in_a_separate_process",
            "--nocapture",
        ])
        .env(URL, server.url())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until_async("the process to wait", async || keys(&[&server]) == 1).await;
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(acquire(&store, WAIT).await.is_none());
    server.set_clock_offset(Skew::Ahead(WAIT + GENEROUS));
    let permit = acquire(&store, WAIT).await;
    assert!(permit.is_some(), "it has expired");
    // And this one, too, though it is never released.
    std::mem::forget(permit);
    assert!(acquire(&store, WAIT).await.is_none());
    server.set_clock_offset(Skew::Ahead(2 * (WAIT + GENEROUS)));
    until_async("nothing to be left", async || keys(&[&server]) == 0).await;
}

/// Not a test of its own: takes a permit and is killed.
#[tokio::test]
async fn in_a_separate_process() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let store = patient([url]).max_cluster_waits(1);
    let store = store.connect().await.unwrap();
    let _permit = acquire(&store, WAIT).await.unwrap();
    std::future::pending::<()>().await;
}

fn ann(cost: u64) -> RequestContext<'static> {
    RequestContext::builder().user("ann").cost(cost).build()
}

/// A rule whose requests wait, and one that charges all of them.
const QUEUE_AND_LATE: &str = "
rule_sets:
  api:
    on_error: deny
    rules:
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 5, window: 500s } ] }
      - { id: late, scope: per_user, charge: always, algorithm: fixed_window, bands: [ { capacity: 100, window: 300d } ] }
";

/// A request that may wait is decided more than once on a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_a_request_that_waits_is_charged_in_any_case_once() {
    let cluster = RedisCluster::start(3);
    let store = patient(cluster.urls()).max_cluster_waits(1);
    let limiter = Limiter::new(rules(QUEUE_AND_LATE), store.connect().await.unwrap());
    let late = async || used(&limiter, "late", &["ann"]).await;
    let at_once = limiter.reserve("api", &ann(5)).await.unwrap();
    assert_eq!((at_once.into_delay(), late().await), (Duration::ZERO, 5));
    let waits = limiter.reserve("api", &ann(2)).await.unwrap();
    assert!(!waits.delay().is_zero());
    assert_eq!(late().await, 7);
    // The only permit is taken.
    let denied = limiter.reserve("api", &ann(3)).await.unwrap_err();
    assert_eq!((denied.outcome(), late().await), (Outcome::Denied, 10));
    // The permits cannot be read, so the store fails, and has charged nothing.
    drop(waits);
    until_async("the permit to be free", async || {
        keys(&cluster.nodes().iter().collect::<Vec<_>>()) == 0
    })
    .await;
    let key = "fluxgate:2:waits";
    let node = &cluster.nodes()[cluster.node_of_hash_slot(hash_slot_of(key))];
    node.cli().command(&["SET", key, "foreign"]);
    let failed = limiter.reserve("api", &ann(4)).await.unwrap_err();
    assert_eq!(
        (failed.outcome(), late().await),
        (Outcome::FailedClosed, 10)
    );
}

/// The key of one rule is missing, so the request does not wait for another.
#[tokio::test]
async fn a_request_that_is_refused_takes_no_permit() {
    let server = RedisServer::start();
    let store = patient([server.url()]).max_cluster_waits(1);
    let limiter = Limiter::new(
        rules(&format!(
            "{QUEUE_AND_LATE}      - {{ id: key, scope: per_api_key, on_missing_key: deny, \
             bands: [ {{ capacity: 5, window: 500s }} ] }}\n"
        )),
        store.connect().await.unwrap(),
    );
    let with_key = RequestContext::builder().user("ann").api_key("k").cost(5);
    let first = limiter.reserve("api", &with_key.build()).await.unwrap();
    assert_eq!(first.into_delay(), Duration::ZERO);
    let refused = limiter.reserve("api", &ann(2)).await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::Never);
    assert_eq!(used(&limiter, "late", &["ann"]).await, 7);
    assert_eq!(keys(&[&server]), 0);
}
