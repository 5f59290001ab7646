//! The suite that every store must pass, on the script.

use fluxgate_core::conformance;
use fluxgate_core::task::ready;
use fluxgate_redis::injected_time::ScriptStore;

use fluxgate_redis::RedisStore;
use fluxgate_testkit::{RedisCluster, RedisServer};

use crate::wire::Wire;

#[test]
fn the_script_decides_as_the_vectors_say() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let steps = ready(conformance::run(async |clock| {
        wire.clear();
        ScriptStore::on_clock(&wire, clock)
    }));
    let steps = steps.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(steps > 300, "only {steps} steps were checked");
}

/// Runs the vectors on the whole store: with connections and batching, and on a
/// cluster with rules in several slots.
async fn run_on(urls: &[String], clear: impl Fn()) {
    let steps = conformance::run(async |clock| {
        clear();
        let store = RedisStore::builder(urls.iter().cloned())
            .deadline(std::time::Duration::from_secs(10))
            .near_cache(false)
            .injected_clock(clock);
        store.connect().await.unwrap()
    });
    let steps = steps.await.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(steps > 300, "only {steps} steps were checked");
}

#[tokio::test]
async fn the_store_on_one_server_decides_as_the_vectors_say() {
    let server = RedisServer::start();
    run_on(&[server.url()], || {
        server.cli().command(&["FLUSHALL"]).expect_ok();
    })
    .await;
}

#[tokio::test]
async fn the_store_on_a_cluster_decides_as_the_vectors_say() {
    let cluster = RedisCluster::start(3);
    run_on(&cluster.urls(), || {
        for node in cluster.nodes() {
            node.cli().command(&["FLUSHALL"]).expect_ok();
        }
    })
    .await;
}
