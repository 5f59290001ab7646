//! Valkey, if it is installed.

use std::path::PathBuf;

use fluxgate_testkit::{RedisCluster, RedisServer, Sentinels, valkey};

fn binary() -> Option<PathBuf> {
    let binary = valkey();
    if binary.is_none() {
        eprintln!("skipped: no valkey-server, and FLUXGATE_VALKEY_SERVER is not set");
    }
    binary
}

#[test]
fn a_valkey_server_starts_and_restarts() {
    let Some(binary) = binary() else { return };
    let server = RedisServer::builder().binary(binary).start();
    assert!(server.cli().info("valkey_version").is_some());
    server.restart();
    assert_eq!(server.cli().dbsize(), 0);
}

#[test]
fn a_valkey_cluster_moves_slots() {
    let Some(binary) = binary() else { return };
    let cluster = RedisCluster::start_with(3, |node| node.binary(&binary));
    cluster.move_hash_slot(0, 2);
    assert_eq!(cluster.node_of_hash_slot(0), 2);
}

#[test]
fn valkey_sentinels_replace_a_dead_primary() {
    let Some(binary) = binary() else { return };
    let all = Sentinels::start_with(|server| server.binary(&binary));
    let dead = all.kill_primary().port();
    assert_ne!(all.wait_for_failover().port(), dead);
}
