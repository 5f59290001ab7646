//! Forgetting a rule with many keys.

use fluxgate_core::{Limiter, RequestContext, RuleSets};
use fluxgate_redis::{RedisStore, RedisStoreBuilder};
use fluxgate_testkit::{RedisCluster, RedisServer};

use crate::support::{patient, rules};

const MANY: usize = 20_000;

/// The rule that goes, one that stays, and one whose key has two parts.
fn three_rules() -> RuleSets {
    rules(
        "
rule_sets:
  api:
    rules:
      - { id: gone, match: { path: [/gone] }, scope: per_user, bands: [ { capacity: 9, window: 300d } ] }
      - { id: stays, match: { path: [/stays] }, scope: per_user, bands: [ { capacity: 9, window: 300d } ] }
      - { id: two, match: { path: [/gone] }, key: [user, path], bands: [ { capacity: 9, window: 300d } ] }
",
    )
}

/// Identities that could be taken for something else.
const ODD: [&str; 8] = ["a}b", "{}", "}{", "*", "?", "[a-z]", "\\", "{1}"];

async fn check(limiter: &Limiter<RedisStore>, name: &str, path: &str) {
    let context = RequestContext::builder().user(name.to_owned()).path(path);
    let decision = limiter.check("api", &context.build()).await.unwrap();
    assert!(decision.allowed());
}

fn all_keys(servers: &[&RedisServer]) -> Vec<String> {
    let keys = servers.iter().flat_map(|server| server.cli().keys("*"));
    keys.collect()
}

fn calls(servers: &[&RedisServer], command: &str) -> u64 {
    let calls = servers.iter().map(|server| server.cli().calls(command));
    calls.sum()
}

async fn only_that_rule_goes(store: impl Fn() -> RedisStoreBuilder, servers: &[&RedisServer]) {
    let limiter = |prefix: &'static str| {
        let store = store().key_prefix(prefix).connect();
        async move { Limiter::new(three_rules(), store.await.unwrap()) }
    };
    // A prefix that would match others, were it taken for a pattern.
    let ours = limiter("fl?x*").await;
    let others = [limiter("flux").await, limiter("fl?x*2").await];
    for name in ODD {
        for path in ["/gone", "/stays"] {
            check(&ours, name, path).await;
            for other in &others {
                check(other, name, path).await;
            }
        }
    }
    let before = all_keys(servers).len();
    assert_eq!(before, 3 * ODD.len() * 3);
    for server in servers {
        server.cli().command(&["CONFIG", "RESETSTAT"]).expect_ok();
    }
    let gone = ours.reset_rule("api", "gone").await.unwrap();
    assert_eq!(gone, ODD.len() as u64);
    assert_eq!(all_keys(servers).len(), before - ODD.len());
    assert_eq!(ours.reset_rule("api", "gone").await.unwrap(), 0);
    for command in ["keys", "flushall", "flushdb", "del"] {
        assert_eq!(calls(servers, command), 0, "{command}");
    }
    // What was forgotten begins anew, and nothing else does.
    for (rule, path_part, left) in [
        ("gone", None, 9),
        ("stays", None, 8),
        ("two", Some("/gone"), 8),
    ] {
        for name in ODD {
            let identity: Vec<&str> = [name].into_iter().chain(path_part).collect();
            let state = ours.state("api", rule, &identity).await.unwrap();
            assert_eq!(state[0].remaining, left, "{rule} {name}");
        }
    }
}

async fn many_keys_go_in_steps(store: RedisStoreBuilder, servers: &[&RedisServer]) {
    let store = store.connect().await.unwrap();
    let limiter = Limiter::new(three_rules(), store);
    check(&limiter, "somebody", "/gone").await;
    check(&limiter, "somebody", "/stays").await;
    // Names like that of the key that is there, made by the servers themselves.
    let keys = all_keys(servers);
    let name = {
        limiter.reset_rule("api", "gone").await.unwrap();
        let left = all_keys(servers);
        keys.into_iter().find(|key| !left.contains(key)).unwrap()
    };
    let stays = all_keys(servers).len();
    let made: usize = servers
        .iter()
        .map(|server| fill(server, &name, MANY / servers.len()))
        .sum();
    for server in servers {
        server.cli().command(&["CONFIG", "RESETSTAT"]).expect_ok();
    }
    let gone = limiter.reset_rule("api", "gone").await.unwrap();
    assert_eq!(gone, made as u64);
    assert_eq!(all_keys(servers).len(), stays);
    let scans = calls(servers, "scan");
    assert!(
        scans >= (made / 1100) as u64,
        "{scans} scans of {made} keys"
    );
    for command in ["keys", "flushall", "flushdb", "del"] {
        assert_eq!(calls(servers, command), 0, "{command}");
    }
}

/// Keys of other identities of the same rule: `somebody` is replaced by a
/// number of as many digits.
fn fill(server: &RedisServer, name: &str, count: usize) -> usize {
    let mut cli = server.cli();
    let mut made = 0;
    let mut sent = 0;
    for number in 0.. {
        let key = name.replace("somebody", &format!("{number:08}"));
        cli.send(&["SET", &key, "x"]).unwrap();
        sent += 1;
        if sent == 500 {
            // A node refuses what is not in its slots.
            made += (0..sent)
                .filter(|_| cli.receive().unwrap().error().is_none())
                .count();
            sent = 0;
        }
        if made >= count {
            break;
        }
    }
    made
}

#[tokio::test]
async fn only_keys_of_that_rule_and_prefix_go_on_one_server() {
    let server = RedisServer::start();
    only_that_rule_goes(|| patient([server.url()]), &[&server]).await;
}

#[tokio::test]
async fn so_on_a_cluster() {
    let cluster = RedisCluster::start(3);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    only_that_rule_goes(|| patient(cluster.urls()), &nodes).await;
}

#[tokio::test]
async fn twenty_thousand_keys_go_in_steps_on_one_server() {
    let server = RedisServer::start();
    many_keys_go_in_steps(patient([server.url()]), &[&server]).await;
}

#[tokio::test]
async fn so_do_they_on_a_cluster() {
    let cluster = RedisCluster::start(3);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    many_keys_go_in_steps(patient(cluster.urls()), &nodes).await;
}
