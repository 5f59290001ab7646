//! What a change of the rules changes, in the log and in the answers of the API.

use fluxgate_testkit::{Http, RedisServer, wait_until};
use serde_json::{Value, json};

use super::Service;
use super::stored_rules::{config, put, rule, set};

const CHANGED: &str = "rules changed";

fn rules(rules: &[&str]) -> String {
    let rules: Vec<_> = rules
        .iter()
        .map(|it| format!("      - {{ {it} }}\n"))
        .collect();
    format!("rule_sets:\n  api:\n    rules:\n{}", rules.concat())
}

/// Replaces the rules, and returns the changes that are logged.
fn change(service: &Service, new: &str) -> Vec<Value> {
    let active = service.logs("rules are active").len();
    let config = service.dir.read("fluxgate.yaml");
    let (head, _) = config.split_once("rule_sets:").unwrap();
    let before = service.logs(CHANGED).len();
    service.dir.write("fluxgate.yaml", format!("{head}{new}"));
    service.wait_for_logs("rules are active", active + 1);
    service.logs(CHANGED).split_off(before)
}

#[test]
fn a_reload_logs_what_changes() {
    let a = "id: a, scope: per_user, bands: [ 1/s ]";
    let b = "id: b, scope: per_ip, bands: [ 1/s ]";
    let service = Service::start(&[], &rules(&[a, b]));
    assert_eq!(
        service.logs(CHANGED),
        [Value::Null; 0],
        "the first rules are no change"
    );
    let changed = change(
        &service,
        &rules(&["id: a, scope: per_user, bands: [ 2/s ]", b]),
    );
    assert_eq!(changed.len(), 1, "{changed:?}");
    let line = &changed[0];
    assert_eq!(
        (&line["rule_set"], &line["rule"]),
        (&json!("api"), &json!("a"))
    );
    assert_eq!(
        (&line["change"], &line["level"]),
        (&json!("changed"), &json!("INFO"))
    );
    assert_eq!(
        line["fields"],
        "bands changed from [{ capacity: 1, window: 1s }] to [{ capacity: 2, window: 1s }]"
    );
    let changed = change(
        &service,
        &rules(&[b, "id: c, scope: global, bands: [ 1/s ]"]),
    );
    let kinds: Vec<_> = changed
        .iter()
        .map(|line| (&line["rule"], &line["change"]))
        .collect();
    let expected = [("a", "removed"), ("c", "added")].map(|(a, b)| (json!(a), json!(b)));
    assert_eq!(
        kinds,
        expected.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>()
    );
    let changed = change(&service, "rule_sets: {}\n");
    assert_eq!(
        (&changed[0]["rule"], &changed[0]["change"]),
        (&Value::Null, &json!("removed"))
    );
}

#[test]
fn many_changes_are_counted_and_identities_are_not_logged() {
    let service = Service::start(&[], &rules(&["id: a, scope: global, bands: [ 1/s ]"]));
    let many: Vec<_> = (0..30)
        .map(|n| format!("id: r{n}, scope: global, bands: [ 1/s ]"))
        .collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(change(&service, &rules(&many)).len(), 20);
    assert_eq!(service.wait_for_log("more rules changed")["more"], 11);
    let with = |identity: &str| {
        rules(&[&format!(
            "id: a, scope: per_user, bands: [ 1/s ], overrides: [ {{ identity: {identity}, bands: [ 2/s ] }} ]"
        )])
    };
    change(&service, &with("ann"));
    let changed = change(&service, &with("bob"));
    assert_eq!(changed[0]["fields"], "overrides changed");
}

#[test]
fn a_write_reports_warnings_about_the_whole_set() {
    let server = RedisServer::start();
    let filter = "filters: { main: { rule_set: api } }\n";
    let service = Service::start(&[], &format!("{filter}{}", config(&server.url(), "1h")));
    let mut http = service.http();
    let mut write = |method: &str, path: &str, body: &str| -> (Value, String) {
        let mut headers = vec![("Prefer", "return=representation")];
        headers.extend((!body.is_empty()).then_some(("Content-Type", "application/json")));
        let answer = http.request(method, &format!("/v1/rule_sets/{path}"), &headers, body);
        let mut answer: Value = serde_json::from_str(&answer.body).unwrap();
        (
            answer["warnings"].take(),
            http.get("/v1/rule_sets/api").body,
        )
    };
    let (warnings, _) = write("PUT", "api", &set(1));
    assert_eq!(warnings, json!([]));
    let rule = r#"{"key":["attr:tenant"],"on_missing_key":"skip","bands":["10/s","600/m"]}"#;
    let (warnings, stored) = write("PUT", "api/rules/more", rule);
    let messages = [
        (
            "\"attr:tenant\"",
            "rule `more` never matches: requests of filter `main` have no attribute `tenant`",
        ),
        (
            "\"600/m\"",
            "band `b1` has no effect: it allows everything that band `b0` allows",
        ),
    ];
    let expected = messages.map(|(at, message)| {
        let column = stored.find(at).unwrap() + 1;
        json!({ "line": 1, "column": column, "message": message })
    });
    assert_eq!(warnings, json!(expected));
    // Another rule changes, and the warnings stay.
    let (warnings, _) = write("POST", "api/rules/r/disable", "");
    assert_eq!(
        warnings,
        json!(expected.map(|mut it| {
            it["column"] =
                json!(it["column"].as_u64().unwrap() + ",\"enabled\":false".len() as u64);
            it
        }))
    );
    let (warnings, _) = write("DELETE", "api/rules/r", "");
    assert_eq!(warnings.as_array().unwrap().len(), 2);
}

/// Writes something, and returns the changes in the answer.
fn changes(http: &mut Http, method: &str, path: &str, body: &str) -> Vec<Value> {
    let mut headers = vec![("Prefer", "return=representation")];
    if !body.is_empty() {
        headers.push(("Content-Type", "application/json"));
    }
    let answer = http.request(method, path, &headers, body);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    let mut answer: Value = serde_json::from_str(&answer.body).unwrap();
    serde_json::from_value(answer["changes"].take()).unwrap()
}

#[test]
fn a_write_reports_what_it_changes() {
    let server = RedisServer::start();
    let service = Service::start(&[], &config(&server.url(), "1h"));
    let mut http = service.http();
    let (of_set, of_rule) = ("/v1/rule_sets/api", "/v1/rule_sets/api/rules/more");
    let change = |rule: Value, change: &str, fields: Value| json!({ "rule_set": "api", "rule": rule, "change": change, "fields": fields });
    let added = changes(&mut http, "PUT", of_set, &set(10));
    assert_eq!(added, [change(Value::Null, "added", json!([]))]);
    let bands = |capacity: u64| format!("[{{ capacity: {capacity}, window: 30d }}]");
    let fields = json!([{ "field": "bands", "before": bands(10), "after": bands(20) }]);
    let changed = changes(&mut http, "PUT", of_set, &set(20));
    assert_eq!(changed, [change(json!("r"), "changed", fields)]);
    assert_eq!(
        changes(&mut http, "PUT", of_set, &set(20)),
        [Value::Null; 0]
    );
    let added = changes(&mut http, "PUT", of_rule, &rule("more", 5).to_string());
    assert_eq!(added, [change(json!("more"), "added", json!([]))]);
    let off = json!([{ "field": "enabled", "before": null, "after": "false" }]);
    let disabled = changes(&mut http, "POST", &format!("{of_rule}/disable"), "");
    assert_eq!(disabled, [change(json!("more"), "changed", off)]);
    let removed = changes(&mut http, "DELETE", of_rule, "");
    assert_eq!(removed, [change(json!("more"), "removed", json!([]))]);
    let removed = changes(&mut http, "DELETE", of_set, "");
    assert_eq!(removed, [change(Value::Null, "removed", json!([]))]);
    // The reloader logs the same, once for each write.
    wait_until("the changes are logged", || {
        service.logs(CHANGED).len() == 6
    });
    // Without the preference, a deletion has no body.
    assert_eq!(put(&mut http, of_set, &set(1), &[]).status, 201);
    let deleted = http.request("DELETE", of_set, &[], "");
    assert_eq!((deleted.status, &*deleted.body), (204, ""));
}
