//! The bound on those who wait.

use std::process::{Command, Stdio};
use std::time::Duration;

use fluxgate_redis::{RedisStore, WaitPlace};
use fluxgate_testkit::{RedisCluster, RedisServer};

use crate::support::{patient, until_async};

const WAIT: Duration = Duration::from_secs(60);

async fn enter(store: &RedisStore, longest: Duration) -> Option<WaitPlace> {
    store.begin_wait(longest).await.unwrap()
}

/// How many keys of ours the servers have.
fn keys(servers: &[&RedisServer]) -> usize {
    let of_server = |server: &&RedisServer| server.cli().keys("*waits*").len();
    servers.iter().map(of_server).sum()
}

async fn bound_over_two_stores(urls: Vec<String>, servers: &[&RedisServer]) {
    let store = || patient(urls.clone()).max_cluster_waits(3).connect();
    let (one, two) = (store().await.unwrap(), store().await.unwrap());
    let mut places = vec![enter(&one, WAIT).await.unwrap()];
    places.push(enter(&two, WAIT).await.unwrap());
    places.push(enter(&two, WAIT).await.unwrap());
    assert!(enter(&one, WAIT).await.is_none());
    assert!(enter(&two, WAIT).await.is_none());
    // One is given back, and taken by the other store.
    places.pop();
    let mut got = None;
    until_async("a place to be free again", async || {
        got = enter(&one, WAIT).await;
        got.is_some()
    })
    .await;
    assert!(enter(&two, WAIT).await.is_none());
    drop((places, got));
    until_async("nothing to be left", async || keys(servers) == 0).await;
}

#[tokio::test]
async fn it_holds_for_all_stores_together_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    bound_over_two_stores(vec![server.url()], &[&server]).await;
}

#[tokio::test]
async fn it_does_on_a_cluster() {
    let cluster = RedisCluster::start(3);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    bound_over_two_stores(cluster.urls(), &nodes).await;
}

#[tokio::test]
async fn without_a_bound_nobody_is_asked() {
    let server = RedisServer::start();
    let store = patient([server.url()]).build().unwrap();
    server.kill();
    assert!(enter(&store, WAIT).await.is_some());
}

#[tokio::test]
async fn a_place_that_nobody_heard_of_is_given_back() {
    let server = RedisServer::start();
    let store = patient([server.url()]).max_cluster_waits(1);
    let store = store.connect().await.unwrap();
    drop(enter(&store, WAIT).await.unwrap());
    until_async("it to be free", async || keys(&[&server]) == 0).await;
    server.pause();
    // Sent, and given up before the answer.
    let entering = tokio::time::timeout(Duration::from_millis(100), enter(&store, WAIT));
    assert!(entering.await.is_err());
    server.resume();
    until_async("the place to be free", async || {
        enter(&store, WAIT).await.is_some()
    })
    .await;
}

const URL: &str = "FLUXGATE_TEST_WAIT_URL";
const LEASE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn the_place_of_a_process_that_died_frees_itself() {
    let server = RedisServer::start();
    let store = patient([server.url()]).max_cluster_waits(1);
    let store = store.connect().await.unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "waits::in_a_process_of_its_own", "--nocapture"])
        .env(URL, server.url())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until_async("the process to wait", async || keys(&[&server]) == 1).await;
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(enter(&store, LEASE).await.is_none());
    let mut place = None;
    let freed = until_async("the place to free itself", async || {
        place = enter(&store, LEASE).await;
        place.is_some()
    });
    assert!(freed.await < Duration::from_secs(5));
    // And this one too, though it is never given back.
    std::mem::forget(place);
    until_async("nothing to be left", async || keys(&[&server]) == 0).await;
}

/// Not a test by itself: takes a place and is killed.
#[tokio::test]
async fn in_a_process_of_its_own() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let store = patient([url]).max_cluster_waits(1);
    let store = store.connect().await.unwrap();
    let _place = enter(&store, LEASE).await.unwrap();
    std::future::pending::<()>().await;
}
