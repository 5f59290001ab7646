//! The changes of rules in `GET /v1/history`.

use fluxgate_testkit::{RedisServer, wait_for, wait_until};
use serde_json::Value;

use super::{get, minutes, now_ms, on_redis};
use crate::service::Service;
use crate::support::Dir;

fn rules(capacity: u32) -> String {
    format!(
        "rule_sets:\n  api:\n    rules:\n      - {{ id: r, scope: global, bands: [ {capacity}/h ] }}\n"
    )
}

fn changes(service: &Service) -> Vec<Value> {
    let history = get(service, &format!("/v1/history?{}", minutes()));
    history["changes"].as_array().unwrap().clone()
}

fn change_file(service: &Service, from: u32, to: u32) {
    let config = service.dir.read("fluxgate.yaml");
    let (from, to) = (format!("{from}/h"), format!("{to}/h"));
    service
        .dir
        .write("fluxgate.yaml", config.replace(&from, &to));
}

#[test]
fn a_change_of_a_file_is_one_entry_of_the_fleet() {
    let server = RedisServer::start();
    for config in [rules(5), on_redis(&server, &rules(5))] {
        let is_shared = config.contains("redis");
        let mut services = vec![Service::start(&[], &config)];
        if is_shared {
            services.push(Service::start(&[], &config));
        }
        let before = now_ms();
        for service in &services {
            change_file(service, 5, 6);
        }
        for service in &services {
            wait_until("the change is recorded", || changes(service).len() == 1);
        }
        let first = changes(&services[0]).remove(0);
        let at = first["at_ms"].as_u64().unwrap();
        assert!((before..=now_ms()).contains(&at), "{first}");
        assert_eq!(
            (&first["rule_set"], &first["who"]),
            (&"api".into(), &Value::Null)
        );
        // Back, in another file as well.
        for service in &services {
            change_file(service, 6, 5);
        }
        for service in &services {
            wait_until("both are recorded", || changes(service).len() == 2);
            let both = changes(service);
            assert_eq!(both[0], first);
            assert_ne!(both[1]["revision"], first["revision"]);
        }
    }
}

#[test]
fn a_stored_change_has_the_name_of_the_token_and_its_revision() {
    // The hash of `secret`.
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let server = RedisServer::start();
    let config = on_redis(
        &server,
        "rules_from: { redis: {} }\nadmin: { tokens_file: tokens }\n",
    );
    let start = || {
        let dir = Dir::new();
        dir.write("tokens", format!("ops:admin:{hash}\n"));
        Service::start_in(dir, &[], &config)
    };
    let services = [start(), start()];
    let token = [
        ("Authorization", "Bearer secret"),
        ("Content-Type", "application/json"),
    ];
    let call = |service: &Service, method: &str, path: &str, body: &str| {
        let answer = service.http().request(method, path, &token, body);
        assert!((200..300).contains(&answer.status), "{answer:?}");
        answer.body
    };
    let changes = |service: &Service| -> Vec<Value> {
        let body = call(service, "GET", "/v1/history", "");
        let history: Value = serde_json::from_str(&body).unwrap();
        history["changes"].as_array().unwrap().clone()
    };
    for capacity in [5, 6] {
        let rule = format!(
            r#"{{"rules":[{{"id":"r","scope":"global","bands":[{{"capacity":{capacity},"window":"1h"}}]}}]}}"#
        );
        call(&services[0], "PUT", "/v1/rule_sets/api", &rule);
        // So that each is seen.
        let expected = capacity - 4;
        wait_until("it is recorded", || changes(&services[1]).len() == expected);
    }
    call(&services[1], "DELETE", "/v1/rule_sets/api", "");
    let all = wait_for("all are recorded", || {
        Some(changes(&services[0])).filter(|all| all.len() == 3)
    });
    let past = call(&services[0], "GET", "/v1/rule_sets/api/history", "");
    let past: Value = serde_json::from_str(&past).unwrap();
    for (change, past) in all.iter().rev().zip(past["changes"].as_array().unwrap()) {
        assert_eq!(change["rule_set"], "api");
        for field in ["at_ms", "revision", "who"] {
            assert_eq!(change[field], past[field], "{field}");
        }
    }
    assert_eq!(all[0]["who"], "ops");
    assert_eq!(changes(&services[1]), all);
}

#[test]
fn changes_that_are_seen_first_at_the_same_time_are_all_recorded() {
    let server = RedisServer::start();
    let service = Service::start(&[], &on_redis(&server, "rules_from: { redis: {} }\n"));
    for capacity in [5, 6, 7] {
        let rule = format!(
            r#"{{"rules":[{{"id":"r","scope":"global","bands":[{{"capacity":{capacity},"window":"1h"}}]}}]}}"#
        );
        let json = [("Content-Type", "application/json")];
        let answer = service
            .http()
            .request("PUT", "/v1/rule_sets/api", &json, &rule);
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }
    wait_until("all are recorded", || changes(&service).len() == 3);
}
