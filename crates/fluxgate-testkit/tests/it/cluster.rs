//! Clusters: moving slots, and dead nodes.

use std::time::Duration;

use fluxgate_testkit::{HASH_SLOTS, RedisCluster, hash_slot_of};

#[test]
fn slots_move_at_once_and_step_by_step() {
    let cluster = RedisCluster::start(3);
    assert_eq!((cluster.len(), cluster.urls().len()), (3, 3));
    assert_eq!(cluster.node_of_hash_slot(0), 0);
    assert_eq!(cluster.node_of_hash_slot(HASH_SLOTS - 1), 2);

    let slot = hash_slot_of("{t}");
    let from = cluster.node_of_hash_slot(slot);
    let (to, third) = ((from + 1) % 3, (from + 2) % 3);
    let mut old = cluster.node(from).cli();
    for key in ["{t}1", "{t}2", "{t}3"] {
        let reply = old.command(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(reply.int(), i64::from(hash_slot_of(key)));
        old.command(&["SET", key, key]).expect_ok();
    }
    let address = format!("127.0.0.1:{}", cluster.node(to).port());
    let error = |node: usize, arguments: &[&str]| {
        let reply = cluster.node(node).cli().command(arguments);
        reply.error().unwrap_or("no error").to_owned()
    };

    let moving = cluster.begin_move(slot, to);
    assert_eq!((moving.from(), moving.to()), (from, to));
    assert_eq!(error(from, &["MGET", "{t}1", "{t}2"]), "no error");
    assert_eq!(moving.move_keys(1), 1);
    let ask = format!("ASK {slot} {address}");
    assert_eq!(error(from, &["GET", "{t}new"]), ask);
    let again = error(from, &["MGET", "{t}1", "{t}2", "{t}3"]);
    assert!(again.starts_with("TRYAGAIN"), "{again}");
    let mut new = cluster.node(to).cli();
    new.command(&["ASKING"]).expect_ok();
    new.command(&["SET", "{t}new", "1"]).expect_ok();
    moving.finish();

    assert_eq!(cluster.node_of_hash_slot(slot), to);
    assert_eq!(
        new.command(&["MGET", "{t}1", "{t}2", "{t}3"]).array().len(),
        3
    );
    assert_eq!(cluster.node(to).cli().keys("{t}*").len(), 4);
    let moved = format!("MOVED {slot} {address}");
    assert_eq!(error(from, &["GET", "{t}1"]), moved);
    assert_eq!(error(third, &["GET", "{t}1"]), moved);

    cluster.move_hash_slot(slot, from);
    assert_eq!(cluster.node_of_hash_slot(slot), from);
    assert_eq!(old.command(&["GET", "{t}1"]).text(), "{t}1");
}

#[test]
fn a_dead_node_affects_only_its_own_slots() {
    let cluster = RedisCluster::start(3);
    let key = cluster.key_on(0, "k");
    let lost = cluster.key_on(1, "k");
    cluster.kill_node(1);
    cluster.wait_until_down(1);
    let mut cli = cluster.node(0).cli();
    cli.set_timeout(Duration::from_secs(10)).unwrap();
    cli.command(&["SET", &key, "1"]).expect_ok();
    let error = cli.command(&["GET", &lost]);
    assert!(error.error().is_some(), "{error:?}");

    cluster.restart_node(1);
    assert_eq!(cluster.node_of_hash_slot(hash_slot_of(&lost)), 1);
    cluster
        .node(1)
        .cli()
        .command(&["SET", &lost, "1"])
        .expect_ok();
    assert_eq!(cli.command(&["GET", &key]).text(), "1");
}
