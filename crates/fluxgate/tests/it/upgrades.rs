//! Two releases on one Redis, while instances are replaced.
//!
//! `FLUXGATE_OLD` names the binary of the older release. Without it, this build takes both sides:
//! then what is shown is that nothing depends on which instance decides or stores.

use std::path::PathBuf;

use fluxgate_testkit::{RedisServer, wait_until};
use serde_json::Value;

use crate::service::Service;
use crate::support::Dir;

const RULES: &str = r#"{"rules":[{"id":"r","scope":"per_user","algorithm":"fixed_window","bands":[{"capacity":CAPACITY,"window":"30d"}]}]}"#;

fn rules(capacity: u64) -> String {
    RULES.replace("CAPACITY", &capacity.to_string())
}

fn new_release() -> PathBuf {
    env!("CARGO_BIN_EXE_fluxgate").into()
}

fn old_release() -> PathBuf {
    std::env::var_os("FLUXGATE_OLD").map_or_else(new_release, PathBuf::from)
}

fn start(release: PathBuf, redis: &RedisServer) -> Service {
    let dir = Dir::new();
    let config = format!(
        "listen: {{ api: '127.0.0.1:0' }}\n\
         store: {{ redis: {{ url: '{}', deadline: 10s, near_cache: false }} }}\n\
         rules_from: {{ redis: {{}}, poll: 100ms }}\n",
        redis.url()
    );
    dir.write("fluxgate.yaml", config);
    let arguments = ["run", "--config", "fluxgate.yaml"];
    let service = Service::open_by(dir, &release, &arguments, 1);
    service.wait_until_ready();
    service
}

#[track_caller]
fn store(service: &Service, rules: &str) {
    let json = [("Content-Type", "application/json")];
    let answer = service
        .http()
        .request("PUT", "/v1/rule_sets/api", &json, rules);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
}

fn check(service: &Service) -> Value {
    let body = r#"{"rule_set":"api","user":"ann"}"#;
    serde_json::from_str(&service.http().post("/v1/check", body).body).unwrap()
}

fn wait_for_limit(service: &Service, limit: u64) {
    wait_until("the rules are active", || {
        let body = r#"{"rule_set":"api","user":"nobody","peek":true}"#;
        let answer = service.http().post("/v1/check", body).body;
        answer.contains(&format!(r#""limit":{limit},"#))
    });
}

#[test]
fn old_and_new_instances_count_together_while_they_are_replaced() {
    let redis = RedisServer::start();
    let old = [old_release(), old_release()].map(|release| start(release, &redis));
    store(&old[0], &rules(10));
    wait_for_limit(&old[1], 10);
    for (service, left) in old.iter().zip([9, 8]) {
        assert_eq!(check(service)["remaining"], left);
    }
    let [first, second] = old;
    first.program.signal("TERM");
    assert!(first.program.wait().success());
    let new = start(new_release(), &redis);
    wait_for_limit(&new, 10);
    for (service, left) in [(&new, 7), (&second, 6), (&new, 5), (&second, 4)] {
        assert_eq!(check(service)["remaining"], left);
    }
    // Rules that either stores, the other takes over.
    store(&new, &rules(20));
    wait_for_limit(&second, 20);
    store(&second, &rules(6));
    wait_for_limit(&new, 6);
    for service in [&new, &second] {
        assert_eq!(check(service)["allowed"], false);
    }
    second.program.signal("TERM");
    assert!(second.program.wait().success());
    assert_eq!(check(&new)["allowed"], false);
    // And back.
    let back = start(old_release(), &redis);
    wait_for_limit(&back, 6);
    assert_eq!(check(&back)["allowed"], false);
}

#[test]
fn an_older_release_refuses_rules_that_it_does_not_know_and_keeps_its_own() {
    let redis = RedisServer::start();
    let service = start(old_release(), &redis);
    store(&service, &rules(10));
    wait_for_limit(&service, 10);
    // As a newer release would store it.
    let newer = rules(5).replacen("\"id\"", "\"of_the_future\":true,\"id\"", 1);
    let mut cli = redis.cli();
    cli.command(&["SET", "fluxgate:1:{rules}:set:api", &newer])
        .expect_ok();
    let etag = fluxgate_redis::etag_of(&newer);
    let index = "fluxgate:1:{rules}:index";
    cli.command(&["HSET", index, "api", &etag, "", "v"]);
    let refusal = service.wait_for_refusals(1).remove(0);
    let fault = refusal["fault"].as_str().unwrap();
    assert!(fault.contains("of_the_future"), "{fault}");
    assert_eq!(check(&service)["limit"], 10);
}

#[test]
fn keys_of_another_layout_are_left_alone() {
    let redis = RedisServer::start();
    let service = start(new_release(), &redis);
    store(&service, &rules(1));
    wait_for_limit(&service, 1);
    assert_eq!(check(&service)["allowed"], true);
    let mut cli = redis.cli();
    let names = cli.keys("fluxgate:{2*");
    assert!(!names.is_empty());
    // The same counters in the layouts before and after this one.
    let others: Vec<_> = names
        .iter()
        .flat_map(|name| ["1", "3"].map(|it| name.replacen("{2", &format!("{{{it}"), 1)))
        .collect();
    for name in &others {
        cli.command(&["SET", name, "theirs"]).expect_ok();
    }
    assert_eq!(check(&service)["allowed"], false);
    let reset = r#"{"rule_set":"api","rule":"r"}"#;
    let answer = service.http().post("/v1/reset", reset);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(check(&service)["allowed"], true);
    for name in &others {
        assert_eq!(cli.command(&["GET", name]).text(), "theirs", "{name}");
    }
}
