//! The bound on requests that wait.

use std::process::{Command, Stdio};
use std::time::Duration;

use fluxgate_core::Store;
use fluxgate_core::store::WaitPermit;
use fluxgate_redis::RedisStore;
use fluxgate_testkit::{RedisCluster, RedisServer, Skew};

use crate::support::{GENEROUS, patient, until_async};

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
