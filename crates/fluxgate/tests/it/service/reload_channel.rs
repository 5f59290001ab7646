//! Messages on OpenFluxGate's channel: each asks for the rules to be read again, whatever their
//! source.

use std::fs;

use fluxgate_testkit::{Cli, RedisCluster, RedisServer, Sentinels, now, wait_until};

use super::http_rules::{Content, RuleServer, rules};
use super::stored_rules::{put, set};
use super::{Service, limit};
use crate::support::Dir;

const CHANNEL: &str = "fluxgate:rule-reload";
const MESSAGE: &str =
    r#"{"ruleSetId":"api","fullReload":false,"timestamp":1700000000000,"source":"studio"}"#;

fn store(server: &RedisServer) -> String {
    let url = server.url();
    format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n")
}

/// Starts a service with rules from HTTP that polls so rarely that only messages matter.
fn start(server: &RuleServer, store: &str) -> Service {
    let source = server.config("").replace("poll: 50ms", "poll: 1h");
    let service = Service::start(&[], &format!("{store}{source}"));
    // One request for the start, and one because messages may have been missed before.
    wait_until("the subscription", || server.upstream.accepted() >= 2);
    service
}

fn publish(cli: &mut Cli, message: &str) {
    cli.command(&["PUBLISH", CHANNEL, message]);
}

#[track_caller]
fn wait_for_limit(service: &Service, expected: u64) {
    let mut http = service.http();
    wait_until("the new limit", || {
        limit(&mut http, "api") == Some(expected)
    });
}

#[test]
fn any_message_reads_rules_from_http() {
    let redis = RedisServer::start();
    let server = RuleServer::start(Content::Tagged(rules(10), "\"0\""));
    let service = start(&server, &store(&redis));
    let mut cli = redis.cli();
    let messages = [MESSAGE, "", "not JSON", "\u{0}"];
    for (message, capacity) in messages.into_iter().zip(11..) {
        server.set(Content::Plain(rules(capacity)));
        publish(&mut cli, message);
        wait_for_limit(&service, capacity);
    }
}

/// The watch does not see these changes: it reports only the directory through which a file was
/// written.
#[test]
fn a_message_reads_files() {
    let redis = RedisServer::start();
    let mut cli = redis.cli();
    for from_dir in [false, true] {
        let dir = Dir::new();
        fs::create_dir(dir.path("rules.d")).unwrap();
        let listen = "listen: { api: \"127.0.0.1:0\" }\n".to_owned() + &store(&redis);
        let (rule_file, config, head) = if from_dir {
            let source = "rules_from: { dir: rules.d, poll: 1h }\n";
            dir.write("fluxgate.yaml", listen + source);
            ("rules.d/rules.yaml", "fluxgate.yaml", String::new())
        } else {
            ("rules.d/fluxgate.yaml", "rules.d/fluxgate.yaml", listen)
        };
        dir.write("elsewhere.yaml", head.clone() + &rules(10));
        fs::hard_link(dir.path("elsewhere.yaml"), dir.path(rule_file)).unwrap();
        let service = Service::run_in(dir, &["run", "--config", config], 1);
        wait_until("the subscription", || {
            cli.command(&["PUBSUB", "NUMSUB", CHANNEL]).array()[1].int() == 1
        });
        service.dir.write("elsewhere.yaml", head + &rules(20));
        publish(&mut cli, MESSAGE);
        wait_for_limit(&service, 20);
        service.program.signal("TERM");
        service.program.wait();
    }
}

#[test]
fn a_message_reads_stored_rules() {
    let redis = RedisServer::start();
    let config = format!("{}rules_from: {{ redis: {{}}, poll: 1h }}\n", store(&redis));
    let service = Service::start(&[], &config);
    put(&mut service.http(), "/v1/rule_sets/api", &set(10), &[]);
    wait_for_limit(&service, 10);
    // Written behind the back of the service, without a message.
    let (mut cli, new) = (redis.cli(), set(20));
    cli.command(&["SET", "fluxgate:1:{rules}:set:api", &new])
        .expect_ok();
    let etag = fluxgate_redis::etag_of(&new);
    cli.command(&["HSET", "fluxgate:1:{rules}:index", "api", &etag, "", "v"]);
    publish(&mut cli, MESSAGE);
    wait_for_limit(&service, 20);
}

#[test]
fn a_flood_of_messages_is_no_flood_of_reads() {
    let redis = RedisServer::start();
    let server = RuleServer::start(Content::Plain(rules(10)));
    let service = start(&server, &store(&redis));
    let before = server.upstream.accepted();
    let mut cli = redis.cli();
    let flood = "for i = 1, 10000 do redis.call('PUBLISH', KEYS[1], i) end";
    let start = now();
    for capacity in 11..=20 {
        server.set(Content::Plain(rules(capacity)));
        cli.command(&["EVAL", flood, "1", CHANNEL]);
    }
    // The last message counts, too.
    wait_for_limit(&service, 20);
    let reads = server.upstream.accepted() - before;
    let most = 2 + start.elapsed().as_millis() / 100;
    assert!(reads as u128 <= most, "{reads} reads, at most {most}");
}

#[test]
fn messages_arrive_again_after_the_connection_is_lost() {
    let redis = RedisServer::start();
    let server = RuleServer::start(Content::Plain(rules(10)));
    let service = start(&server, &store(&redis));
    let mut cli = redis.cli();
    for capacity in [20, 30] {
        assert_eq!(cli.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int(), 1);
        // The message may be lost; the rules are read after the new subscription, too.
        server.set(Content::Plain(rules(capacity)));
        publish(&mut cli, MESSAGE);
        wait_for_limit(&service, capacity);
        wait_until("the subscription", || {
            cli.command(&["PUBSUB", "NUMSUB", CHANNEL]).array()[1].int() == 1
        });
        server.set(Content::Plain(rules(capacity + 1)));
        publish(&mut cli, MESSAGE);
        wait_for_limit(&service, capacity + 1);
    }
}

#[test]
fn a_message_to_any_node_of_a_cluster_is_heard() {
    let cluster = RedisCluster::start(3);
    let urls = cluster.urls().join("\", \"");
    let server = RuleServer::start(Content::Plain(rules(10)));
    let store = format!("store: {{ redis: {{ urls: [\"{urls}\"], deadline: 10s }} }}\n");
    let service = start(&server, &store);
    for (node, capacity) in cluster.nodes().iter().zip(11..) {
        server.set(Content::Plain(rules(capacity)));
        publish(&mut node.cli(), MESSAGE);
        wait_for_limit(&service, capacity);
    }
}

#[test]
fn messages_are_heard_after_a_failover() {
    let sentinels = Sentinels::start();
    let (urls, master) = (
        sentinels.sentinel_urls().join("\", \""),
        sentinels.master_name(),
    );
    let server = RuleServer::start(Content::Plain(rules(10)));
    let store = format!(
        "store: {{ redis: {{ urls: [\"{urls}\"], mode: sentinel, sentinel: {{ master: {master} }}, deadline: 10s }} }}\n"
    );
    let service = start(&server, &store);
    server.set(Content::Plain(rules(20)));
    publish(&mut sentinels.primary().cli(), MESSAGE);
    wait_for_limit(&service, 20);
    let primary = sentinels.fail_over();
    let mut cli = primary.cli();
    wait_until("the subscription at the new primary", || {
        let subscribers = cli.command(&["PUBSUB", "NUMSUB", CHANNEL]);
        subscribers.array()[1].int() == 1
    });
    server.set(Content::Plain(rules(30)));
    publish(&mut cli, MESSAGE);
    wait_for_limit(&service, 30);
}

/// A user with access to the channel of the stored rules, but not to this one.
#[test]
fn stored_rules_do_not_need_this_channel() {
    let user = "app on >pw ~* resetchannels &fluxgate:rules +@all";
    let redis = RedisServer::builder().user(user).start();
    let url = redis.url_as("app", "pw");
    let config = format!(
        "store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\nrules_from: {{ redis: {{}}, poll: 1h }}\n"
    );
    let (one, other) = (Service::start(&[], &config), Service::start(&[], &config));
    let line = other.wait_for_log("no requests to reload the rules arrive");
    assert_eq!(line["channel"], CHANNEL);
    put(&mut one.http(), "/v1/rule_sets/api", &set(10), &[]);
    wait_for_limit(&other, 10);
    let silence = "no messages about rules arrive; changes take effect at the next poll";
    assert_eq!(other.logs(silence).len(), 0);
}

/// A server that answers slowly is read by one request at a time.
#[test]
fn reads_do_not_overlap() {
    let redis = RedisServer::start();
    let server = RuleServer::start(Content::Plain(rules(10)));
    let service = start(&server, &store(&redis));
    server.set(Content::Silence);
    let before = server.upstream.accepted();
    let mut cli = redis.cli();
    publish(&mut cli, MESSAGE);
    wait_until("the read", || server.upstream.accepted() > before);
    let flood = "for i = 1, 1000 do redis.call('PUBLISH', KEYS[1], i) end";
    cli.command(&["EVAL", flood, "1", CHANNEL]);
    assert_eq!(limit(&mut service.http(), "api"), Some(10));
    assert_eq!(server.upstream.accepted(), before + 1);
    // The read that was pending follows by itself.
    server.set(Content::Plain(rules(20)));
    server.upstream.close_connections();
    wait_for_limit(&service, 20);
    assert!(server.upstream.accepted() <= before + 3);
}
