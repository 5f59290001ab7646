//! Rules in Redis, written through the API.

mod failures;
mod instances;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fluxgate_testkit::{Answer, Http, RedisCluster, RedisServer, Reply, wait_for, wait_until};
use serde_json::{Value, json};

use super::{Service, limit};
use crate::support::Dir;

const JSON: (&str, &str) = ("Content-Type", "application/json");

pub(super) fn config(url: &str, poll: &str) -> String {
    format!(
        "store: {{ redis: {{ url: \"{url}\", deadline: 10s, near_cache: false }} }}\nrules_from: {{ redis: {{}}, poll: {poll} }}\n"
    )
}

fn start(url: &str, poll: &str) -> Service {
    Service::start(&[], &config(url, poll))
}

/// Starts a service with a `poll` so long that only messages announce changes.
fn start_without_polling(server: &RedisServer) -> Service {
    start(&server.url(), "1h")
}

pub(super) fn rule(id: &str, capacity: u64) -> Value {
    json!({
        "id": id, "scope": "per_user", "algorithm": "fixed_window",
        "bands": [{ "capacity": capacity, "window": "30d" }],
    })
}

pub(super) fn set(capacity: u64) -> String {
    json!({ "on_error": "deny", "rules": [rule("r", capacity)] }).to_string()
}

pub(super) fn put(http: &mut Http, path: &str, body: &str, more: &[(&str, &str)]) -> Answer {
    let headers: Vec<_> = [JSON].iter().chain(more).copied().collect();
    http.request("PUT", path, &headers, body)
}

#[track_caller]
fn put_ok(service: &Service, path: &str, body: &str) -> Answer {
    let answer = put(&mut service.http(), path, body, &[]);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    answer
}

#[expect(clippy::disallowed_methods, reason = "the test measures real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn a_stored_set_is_returned_unchanged_and_active_at_once() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    assert_eq!(http.get("/v1/rule_sets/api").status, 404);
    let body = r#"{ "rules": [ {"id":"r","scope":"per_user",
        "attributes": {"tier": 1.50}, "bands":[{"window":"30d","capacity":10}]} ],
        "on_error":"deny" }"#;
    let created = put(&mut http, "/v1/rule_sets/api", body, &[]);
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(limit(&mut http, "api"), Some(10));
    let got = http.get("/v1/rule_sets/api");
    assert_eq!(got.status, 200);
    // The same digits in the same order, without the spaces.
    let compact: String = body.split_whitespace().collect();
    assert_eq!(got.body, compact);
    let fields = compact.strip_suffix('}').unwrap();
    assert!(
        created.body.starts_with(&format!("{fields},\"changes\":[")),
        "{created:?}"
    );
    assert_eq!(got.header("etag"), created.header("etag"));
    assert_eq!(got.header("content-type"), Some("application/json"));
    let etag = got.header("etag").unwrap().to_owned();
    let known = http.request("GET", "/v1/rule_sets/api", &[("If-None-Match", &etag)], "");
    assert_eq!((known.status, known.header("etag")), (304, Some(&*etag)));
    let replaced = put(&mut http, "/v1/rule_sets/api", &set(20), &[]);
    assert_eq!(replaced.status, 200);
    assert_ne!(replaced.header("etag"), Some(&*etag));
    assert_eq!(limit(&mut http, "api"), Some(20));
    let deleted = http.request("DELETE", "/v1/rule_sets/api", &[], "");
    assert_eq!(deleted.status, 204);
    assert_eq!(limit(&mut http, "api"), None);
    let again = http.request("DELETE", "/v1/rule_sets/api", &[], "");
    assert_eq!(again.status, 404);
}

#[test]
fn lists_and_actions_are_stored_and_apply_at_once() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    let set = |blocked: &str| {
        format!(
            r#"{{"lists":{{"blocked":[{blocked}]}},"rules":[{{"id":"no","action":"deny","status":451,
            "match":{{"user":{{"in":"blocked"}}}}}},{{"id":"r","scope":"per_user","bands":["10/h"]}}]}}"#
        )
    };
    put_ok(&service, "/v1/rule_sets/api", &set(r#""eve""#));
    let outcome = |http: &mut Http, user: &str| {
        let body = format!(r#"{{"rule_set":"api","user":"{user}"}}"#);
        let answer = http.post("/v1/check?status=true", &body);
        let json: Value = serde_json::from_str(&answer.body).unwrap();
        (answer.status, json["outcome"].as_str().unwrap().to_owned())
    };
    assert_eq!(outcome(&mut http, "eve"), (451, "forbidden".into()));
    assert_eq!(outcome(&mut http, "ann"), (200, "allowed".into()));
    let changed = put(&mut http, "/v1/rule_sets/api", &set(r#""eve","ann""#), &[]);
    assert_eq!(changed.status, 200, "{changed:?}");
    assert!(
        changed.body.contains(r#""field":"lists.blocked""#),
        "{changed:?}"
    );
    assert_eq!(outcome(&mut http, "ann"), (451, "forbidden".into()));
    // A rule by itself refers to the lists of its set.
    let path = "/v1/rule_sets/api/rules/office";
    let office = r#"{"action":"allow","priority":1,"match":{"ip":{"in":"office"}}}"#;
    let missing = put(&mut http, path, office, &[]);
    assert_eq!(missing.status, 409, "{missing:?}");
    assert!(
        missing.body.contains("there is no list `office`"),
        "{missing:?}"
    );
    let vip = r#"{"action":"allow","priority":1,"match":{"user":{"not_in":"blocked"}}}"#;
    let put_rule = put(&mut http, path, vip, &[]);
    assert_eq!(put_rule.status, 201, "{put_rule:?}");
    assert_eq!(outcome(&mut http, "bob"), (200, "exempt".into()));
    let wrong = r#"{"action":"allow","bands":["10/s"]}"#;
    assert_eq!(put(&mut http, path, wrong, &[]).status, 400);
}

#[test]
fn a_rule_can_be_put_enabled_disabled_and_deleted() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    let path = "/v1/rule_sets/api/rules/more";
    assert_eq!(
        put(&mut http, path, &rule("more", 5).to_string(), &[]).status,
        404
    );
    put_ok(&service, "/v1/rule_sets/api", &set(10));
    let created = put(&mut http, path, &rule("more", 5).to_string(), &[]);
    assert_eq!(created.status, 201, "{created:?}");
    let got = http.get(path);
    assert_eq!(
        serde_json::from_str::<Value>(&got.body).unwrap(),
        rule("more", 5)
    );
    assert_eq!(got.header("etag"), created.header("etag"));
    assert_eq!(limit(&mut http, "api"), Some(5));
    // A disabled rule is not active, but still stored.
    let off = http.post(&format!("{path}/disable"), "");
    assert_eq!(off.status, 200, "{off:?}");
    assert!(off.body.contains(r#""enabled":false"#), "{off:?}");
    assert_eq!(limit(&mut http, "api"), Some(10));
    // A request without a body needs no content type.
    let enable = format!("{path}/enable");
    let typed = [("Content-Type", "text/plain")];
    let evil = [("Origin", "https://evil.example")];
    for (headers, body, status) in [
        (&typed[..], "{}", 415),
        (&evil, "", 403),
        (&typed, "", 200),
        (&[], "{}", 200),
    ] {
        let on = http.request("POST", &enable, headers, body);
        assert_eq!(on.status, status, "{headers:?} {on:?}");
    }
    assert_eq!(limit(&mut http, "api"), Some(5));
    let without_id = r#"{"scope":"global","bands":[{"capacity":4,"window":"1h"}]}"#;
    assert_eq!(put(&mut http, path, without_id, &[]).status, 200);
    assert_eq!(limit(&mut http, "api"), Some(4));
    assert_eq!(http.request("DELETE", path, &[], "").status, 204);
    assert_eq!(http.get(path).status, 404);
    assert_eq!(limit(&mut http, "api"), Some(10));
    // A set must have a rule.
    let last = http.request("DELETE", "/v1/rule_sets/api/rules/r", &[], "");
    assert_eq!(last.status, 409, "{last:?}");
    for missing in ["/v1/rule_sets/api/rules/no", "/v1/rule_sets/no/rules/r"] {
        assert_eq!(http.request("DELETE", missing, &[], "").status, 404);
        assert_eq!(http.get(missing).status, 404);
        assert_eq!(http.post(&format!("{missing}/enable"), "").status, 404);
    }
}

#[test]
fn invalid_rules_are_refused_with_positions_and_not_stored() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    put_ok(&service, "/v1/rule_sets/api", &set(10));
    let bad = "{\n \"rules\": [\n  { \"id\": \"r\", \"scope\": \"nobody\", \"bands\": [{\"capacity\": 0, \"window\": \"1s\"}] }\n ]\n}";
    let answer = put(&mut http, "/v1/rule_sets/api", bad, &[]);
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    let faults = problem["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{problem}");
    assert_eq!(
        (&faults[0]["line"], &faults[0]["column"]),
        (&json!(3), &json!(25))
    );
    assert!(faults[0]["message"].as_str().unwrap().contains("`scope`"));
    let at = "/v1/rule_sets/api/rules/r";
    for (path, body, status) in [
        ("/v1/rule_sets/api", "{", 400),
        ("/v1/rule_sets/api", "[]", 400),
        ("/v1/rule_sets/api", "", 400),
        ("/v1/rule_sets/api", "rules: []", 400),
        ("/v1/rule_sets/api", r#"{"rules":[]}"#, 400),
        ("/v1/rule_sets/api", r#"{"rules":[],"rules":[]}"#, 400),
        ("/v1/rule_sets/api", r#"{"rule_sets":{}}"#, 400),
        ("/v1/rule_sets/a%01b", &set(1), 400),
        (at, &rule("other", 1).to_string(), 400),
        (at, r#"{"id":5}"#, 400),
        (at, r#"{"id":["r"]}"#, 400),
        (at, "{}", 400),
        (
            "/v1/rule_sets/api/rules/UPPER",
            &rule("UPPER", 1).to_string(),
            400,
        ),
        ("/v1/rule_sets/api", &" ".repeat(64 * 1024 + 1), 413),
    ] {
        let answer = put(&mut http, path, body, &[]);
        assert_eq!(answer.status, status, "{path} {body:.99}: {answer:?}");
    }
    assert_eq!(http.get("/v1/rule_sets/api").body, set(10));
    let mut cli = server.cli();
    // The index, the set and its history.
    let mut keys = cli.keys("*");
    keys.retain(|key| is_of_rules(key));
    assert_eq!(keys.len(), 3, "{keys:?}");
}

/// Returns whether a key has stored rules, and not what else instances share.
fn is_of_rules(key: &str) -> bool {
    let names = [":{rules}:index", ":{rules}:set:", ":{rules}:history:"];
    names.iter().any(|name| key.contains(name))
}

#[test]
fn preconditions_apply_to_sets_and_rules() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    let (of_set, of_rule) = ("/v1/rule_sets/api", "/v1/rule_sets/api/rules/r");
    assert_eq!(
        put(&mut http, of_set, &set(1), &[("If-Match", "*")]).status,
        412
    );
    assert_eq!(
        put(&mut http, of_set, &set(1), &[("If-None-Match", "*")]).status,
        201
    );
    assert_eq!(
        put(&mut http, of_set, &set(2), &[("If-None-Match", "*")]).status,
        412
    );
    for path in [of_set, of_rule] {
        let old = http.get(path).header("etag").unwrap().to_owned();
        let body = |capacity| {
            if path == of_set {
                set(capacity)
            } else {
                rule("r", capacity).to_string()
            }
        };
        let done = put(&mut http, path, &body(7), &[("If-Match", &old)]);
        assert_eq!(done.status, 200, "{done:?}");
        let new = done.header("etag").unwrap().to_owned();
        for bad in [&*old, "\"x\"", &format!("W/{new}")] {
            let refused = put(&mut http, path, &body(8), &[("If-Match", bad)]);
            assert_eq!(refused.status, 412, "{bad}");
            let refused = http.request("DELETE", path, &[("If-Match", bad)], "");
            assert_eq!(refused.status, 412, "{bad}");
        }
        assert_eq!(
            put(&mut http, path, &body(8), &[("If-Match", "x")]).status,
            400
        );
        let either = format!("{old}, {new}");
        assert_eq!(
            put(&mut http, path, &body(9), &[("If-Match", &either)]).status,
            200
        );
    }
    assert_eq!(limit(&mut http, "api"), Some(9));
}

#[test]
fn a_set_is_read_and_written_as_yaml() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    let yaml = ("Content-Type", "application/yaml");
    let text =
        "on_error: deny\nrules:\n  - id: r # a comment\n    scope: per_user\n    bands: [ 5/m ]\n";
    let written = http.request("PUT", "/v1/rule_sets/api", &[yaml], text);
    assert_eq!(written.status, 201, "{written:?}");
    assert_eq!(
        http.get("/v1/rule_sets/api").body,
        r#"{"on_error":"deny","rules":[{"id":"r","scope":"per_user","bands":["5/m"]}]}"#
    );
    let read = http.get("/v1/rule_sets/api/text");
    let answer: Value = serde_json::from_str(&read.body).unwrap();
    assert_eq!(
        answer["text"],
        "on_error: deny\nrules:\n  - id: r\n    scope: per_user\n    bands:\n      - { capacity: 5, window: 1m }\n"
    );
    let etag = answer["etag"].as_str().unwrap().to_owned();
    assert_eq!(read.header("etag"), Some(&*etag));
    // The text can be written back while the ETag still matches.
    let text = answer["text"].as_str().unwrap();
    let again = http.request(
        "PUT",
        "/v1/rule_sets/api",
        &[yaml, ("If-Match", &etag)],
        text,
    );
    assert_eq!(again.status, 200, "{again:?}");
    let late = http.request(
        "PUT",
        "/v1/rule_sets/api",
        &[yaml, ("If-Match", &etag)],
        text,
    );
    assert_eq!(late.status, 412, "{late:?}");
    let bad = http.request(
        "PUT",
        "/v1/rule_sets/api",
        &[yaml],
        "rules:\n  - id: r\n    bnds: 1\n",
    );
    let bad: Value = serde_json::from_str(&bad.body).unwrap();
    assert_eq!(bad["faults"][2]["line"], 3, "{bad}");
    assert_eq!(http.get("/v1/rule_sets/other/text").status, 404);
    // A value may be left out in every spelling of null.
    for null in ["", "~", "Null", "NULL", "null"] {
        let text = format!(
            "rules:\n  - id: r\n    name: {null}\n    match: {null}\n    bands: [ 5/m ]\n    scope: per_user\n"
        );
        let written = http.request("PUT", "/v1/rule_sets/api", &[yaml], &text);
        assert_eq!(written.status, 200, "{null:?}: {written:?}");
    }
}

#[test]
fn the_history_says_who_changed_what() {
    let server = RedisServer::start();
    let service = start_without_polling(&server);
    let mut http = service.http();
    put_ok(&service, "/v1/rule_sets/api", &set(1));
    put_ok(
        &service,
        "/v1/rule_sets/api/rules/r",
        &rule("r", 2).to_string(),
    );
    // Nothing changes, so nothing is added.
    let condition = ("If-Match", "\"x\"");
    assert_eq!(
        put(&mut http, "/v1/rule_sets/api", &set(3), &[condition]).status,
        412
    );
    http.request("DELETE", "/v1/rule_sets/api", &[], "");
    let history: Value = serde_json::from_str(&http.get("/v1/rule_sets/api/history").body).unwrap();
    let changes = history["changes"].as_array().unwrap();
    let what: Vec<_> = changes
        .iter()
        .map(|it| it["what"].as_str().unwrap())
        .collect();
    assert_eq!(what, ["delete rule set", "put rule r", "put rule set"]);
    assert!(
        changes.iter().all(|it| it["who"] == "loopback"),
        "{changes:?}"
    );
    assert_eq!(changes[0]["text"], Value::Null);
    assert!(changes[1]["text"].as_str().unwrap().contains("capacity: 2"));
    assert!(changes[2]["text"].as_str().unwrap().contains("capacity: 1"));
    assert!(changes[0]["at_ms"].as_u64() >= changes[2]["at_ms"].as_u64());
    let mut cli = server.cli();
    let key = cli.keys("*:history:api").remove(0);
    let mut days_left = || match cli.command(&["PTTL", &key]) {
        Reply::Int(millis) => millis / 86_400_000,
        reply => panic!("{reply:?}"),
    };
    assert!((80..=90).contains(&days_left()), "a deleted set");
    for number in 0..60 {
        put_ok(&service, "/v1/rule_sets/api", &set(10 + number));
    }
    assert!(days_left() > 30_000, "a set that is stored again");
    let history: Value = serde_json::from_str(&http.get("/v1/rule_sets/api/history").body).unwrap();
    assert_eq!(history["changes"].as_array().unwrap().len(), 50);
}
