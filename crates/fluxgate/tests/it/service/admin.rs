//! The admin endpoints: refunds, resets, state and the list of rules.

mod access;
mod audit;
mod call_limits;
mod wrong_tokens;

use fluxgate_testkit::{Answer, Http, RedisServer, wait_for, wait_until};
use serde_json::{Value, json};

use super::Service;
use super::stored_rules::{config, put, set};
use crate::support::Dir;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - id: per-user
        scope: per_user
        algorithm: fixed_window
        bands: [ { id: day, capacity: 10, window: 30d }, { id: year, capacity: 20, window: 300d } ]
        overrides: [ { identity: vip, bands: [ { id: day, capacity: 99, window: 30d } ] } ]
      - { id: pair, key: [user, \"attr:tenant\"], algorithm: fixed_window, bands: [ { capacity: 7, window: 30d } ] }
      - { id: all, scope: global, algorithm: sliding_log, bands: [ { capacity: 50, window: 30d } ] }
      - { id: bucket, match: { path: [\"/bucket\"] }, scope: per_ip, on_exceed: wait, bands: [ { capacity: 5, window: 1h, refill: 2, period: 1m } ] }
";

fn json(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_str(&answer.body).unwrap()
}

fn check(http: &mut Http, user: &str) {
    let body = json!({ "rule_set": "api", "user": user, "attributes": { "tenant": "a&b=c" } });
    let answer = http.post("/v1/check", &body.to_string());
    assert!(answer.body.contains("\"allowed\":true"), "{answer:?}");
}

/// Returns the remaining units in each band of a rule.
fn remaining(http: &mut Http, query: &str) -> Vec<u64> {
    let state = json(&http.get(&format!("/v1/state?rule_set=api&{query}")));
    let bands = state["bands"].as_array().unwrap().iter();
    bands
        .map(|band| band["remaining"].as_u64().unwrap())
        .collect()
}

/// Returns the setting for a store in Redis.
fn store_in(server: &RedisServer) -> String {
    let url = server.url();
    format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n")
}

/// Sends each call, a line `ENDPOINT BODY -> STATUS TEXT`, and checks the status and that the
/// problem contains the text.
#[track_caller]
fn assert_refused(http: &mut Http, calls: &str) {
    for line in calls.trim().lines() {
        let (call, expected) = line.split_once(" -> ").unwrap();
        let (endpoint, body) = call.split_once(' ').unwrap();
        let (status, text) = expected.split_once(' ').unwrap();
        let answer = http.post(&format!("/v1/{endpoint}"), body);
        assert_eq!(answer.status.to_string(), status, "{line}: {answer:?}");
        assert!(answer.body.contains(text), "{line}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
    }
}

#[test]
fn state_refund_and_reset_on_every_store() {
    let server = RedisServer::start();
    let redis = store_in(&server);
    for store in ["", &redis] {
        let service = Service::start(&[], &(store.to_owned() + RULES));
        let mut http = service.http();
        for user in ["u", "u", "u", "ä b", "vip"] {
            check(&mut http, user);
        }
        let state = json(&http.get("/v1/state?rule_set=api&rule=per-user&identity=u"));
        let bands = state["bands"].as_array().unwrap();
        assert_eq!(bands.len(), 2);
        assert_eq!(
            (&bands[0]["band"], &bands[0]["limit"]),
            (&json!("day"), &json!(10))
        );
        assert!(bands[0]["reset_after_ms"].as_u64().unwrap() > 0);
        assert_eq!(bands[0].as_object().unwrap().len(), 4);
        assert_eq!(remaining(&mut http, "rule=per-user&identity=u"), [7, 17]);
        assert_eq!(
            remaining(&mut http, "rule=per-user&identity=%C3%A4+b"),
            [9, 19]
        );
        assert_eq!(remaining(&mut http, "rule=per-user&identity=vip"), [98]);
        assert_eq!(
            remaining(&mut http, "rule=pair&identity=u&identity=a%26b%3Dc"),
            [4]
        );
        assert_eq!(remaining(&mut http, "rule=all"), [45]);

        let refund =
            |http: &mut Http, body: Value| json(&http.post("/v1/refund", &body.to_string()));
        let of_u = json!({ "rule_set": "api", "rule": "per-user", "identity": "u", "units": 2 });
        assert_eq!(refund(&mut http, of_u), json!({ "remaining": 9 }));
        let of_pair =
            json!({ "rule_set": "api", "rule": "pair", "identity": ["u", "a&b=c"], "units": 1 });
        assert_eq!(refund(&mut http, of_pair), json!({ "remaining": 5 }));
        let of_all = json!({ "rule_set": "api", "rule": "all", "units": u64::MAX });
        assert_eq!(refund(&mut http, of_all), json!({ "remaining": 50 }));

        let reset = |http: &mut Http, body: Value| json(&http.post("/v1/reset", &body.to_string()));
        let of_u = json!({ "rule_set": "api", "rule": "per-user", "identity": ["u"] });
        assert_eq!(reset(&mut http, of_u.clone()), json!({ "reset": 2 }));
        assert_eq!(reset(&mut http, of_u), json!({ "reset": 0 }));
        let of_rule = json!({ "rule_set": "api", "rule": "per-user" });
        assert_eq!(reset(&mut http, of_rule), json!({ "reset": 3 }));
        assert_eq!(remaining(&mut http, "rule=per-user&identity=vip"), [99]);
        assert_eq!(
            remaining(&mut http, "rule=pair&identity=u&identity=a%26b%3Dc"),
            [5]
        );
    }
}

/// Calls and what is wrong with them, as in [`assert_refused`].
const INVALID: &str = r#"
refund {"rule":"all","units":1} -> 400 `rule_set`
refund {"rule_set":"api","units":1} -> 400 `rule`
refund {"rule_set":"api","rule":"all"} -> 400 `units`
refund {"rule_set":"api","rule":"all","units":0} -> 400 `units`
refund {"rule_set":"api","rule":"all","units":1.5} -> 400 `units`
refund {"rule_set":"api","rule":"all","units":"1"} -> 400 `units`
refund {"rule_set":1,"rule":"all","units":1} -> 400 `rule_set`
refund {"rule_set":"api","rule":"all","units":1,"more":1} -> 400 `more`
refund {"rule_set":"api","rule_set":"api","rule":"all","units":1} -> 400 `rule_set`
refund {"rule_set":"api","rule":"all","units":1,"identity":"x"} -> 400 `identity`
refund {"rule_set":"api","rule":"per-user","units":1,"identity":5} -> 400 `identity`
refund {"rule_set":"api","rule":"per-user","units":1,"identity":[5]} -> 400 `identity`
refund {"rule_set":"api","rule":"per-user","units":1} -> 400 `identity`
refund {"rule_set":"api","rule":"pair","units":1,"identity":"one"} -> 400 `identity`
refund [] -> 400 object
refund { -> 400 line 1
refund {"rule_set":"no","rule":"all","units":1} -> 404 `no`
refund {"rule_set":"api","rule":"no","units":1} -> 404 `no`
reset {"rule_set":"api","rule":"no"} -> 404 `no`
reset {"rule_set":"api","rule":"all","units":1} -> 400 `units`
"#;

#[test]
fn invalid_calls_are_refused() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    assert_refused(&mut http, INVALID);
    let large = http.post("/v1/reset", &" ".repeat(65_537));
    assert_eq!(large.status, 413, "{large:?}");
    assert!(large.body.contains("65536"), "{large:?}");
    for (query, status) in [
        ("", 400),
        ("rule_set=api", 400),
        ("rule_set=api&rule=per-user", 400),
        ("rule_set=api&rule=all&rule=all", 400),
        ("rule_set=api&rule=all&what=1", 400),
        ("rule_set=api&rule=no", 404),
        ("rule_set=no&rule=all", 404),
        ("rule_set=api&rule=per-user&identity=a%20b%C3%A4+c", 200),
    ] {
        assert_eq!(
            http.get(&format!("/v1/state?{query}")).status,
            status,
            "{query}"
        );
    }
    // Invalid UTF-8 is not replaced.
    for (field, value) in [
        ("identity", "%zz"),
        ("identity", "%FF"),
        ("identity", "%"),
        ("identity", "a%2"),
        ("rule", "%FF"),
    ] {
        let query = format!("rule_set=api&rule=per-user&identity=u&{field}={value}");
        let answer = http.get(&format!("/v1/state?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        let detail = format!("`{field}` is badly encoded");
        assert!(answer.body.contains(&detail), "{query}: {answer:?}");
    }
}

#[test]
fn the_active_rules_are_listed_without_identities() {
    let service = Service::start(&[], RULES);
    let answer = service.http().get("/v1/rule_sets");
    assert!(!answer.body.contains("vip"), "{answer:?}");
    let list = json(&answer);
    assert_eq!(list["source"], "file");
    let set = &list["rule_sets"][0];
    assert_eq!(
        (&set["name"], &set["on_error"]),
        (&json!("api"), &json!("local"))
    );
    assert_eq!(set["rules"][1]["key"], json!(["user", "attr:tenant"]));
    assert_eq!(
        set["rules"][3],
        json!({
            "id": "bucket", "name": null, "mode": "enforce", "priority": 100, "key": ["ip"],
            "algorithm": "token_bucket", "group": null, "rollout": null, "on_exceed": "wait",
            "lease": null, "notify": [], "match": { "path": ["/bucket"] }, "max_wait_ms": 5000,
            "bands": [{ "id": "b0", "capacity": 5, "window_ms": 3_600_000, "refill": 2, "period_ms": 60_000 }],
        })
    );
}

#[test]
fn the_active_rules_are_listed_with_the_shares_that_they_notify_of() {
    let rules = "rule_sets: { api: { rules: [ \
                 { id: r, scope: global, bands: [ 1/h ], notify: [100%, 99.50%, 80%] } ] } }";
    let service = Service::start(&[], rules);
    let list = json(&service.http().get("/v1/rule_sets"));
    let notify = &list["rule_sets"][0]["rules"][0]["notify"];
    assert_eq!(*notify, json!(["80%", "99.5%", "100%"]));
}

#[test]
fn rules_in_files_cannot_be_written() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let path = "/v1/rule_sets/api";
    let answers = [
        http.get(path),
        put(&mut http, path, &set(1), &[]),
        http.request("DELETE", path, &[], ""),
        put(&mut http, &format!("{path}/rules/all"), "{}", &[]),
        http.post(&format!("{path}/rules/all/disable"), ""),
    ];
    for answer in answers {
        assert_eq!(answer.status, 405, "{answer:?}");
        assert_eq!(answer.header("allow"), Some(""));
        assert!(
            answer.body.contains("the config file fluxgate.yaml"),
            "{answer:?}"
        );
    }
}
