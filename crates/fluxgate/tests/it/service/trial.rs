//! Recorded requests, and what rules would decide about them.

mod fleet;

use serde_json::{Value, json};

use super::Service;
use super::live::{RULES, check, get, post};

#[test]
fn requests_are_recorded_only_if_asked_for_and_without_identities() {
    let service = Service::start(&[], RULES);
    check(&service, "ann");
    assert_eq!(
        get(&service, "/v1/recent"),
        json!({
            "records": false, "identities": false, "scope": "instance", "failure": null,
            "instances": { "known": 1, "answered": 1, "recording": 0 },
            "events": [], "decisions": [],
        })
    );

    let service = Service::start(&[], &format!("admin: {{ record: true }}\n{RULES}"));
    for user in ["ann", "bob", "ann"] {
        check(&service, user);
    }
    let recent = get(&service, "/v1/recent");
    let events = recent["events"].as_array().unwrap();
    assert_eq!((events.len(), &recent["records"]), (3, &json!(true)));
    assert_eq!(events[0]["user"], events[2]["user"]);
    assert_ne!(events[0]["user"], events[1]["user"]);
    assert_eq!(events[0]["path"], "/api/x");
    let header = &events[0]["headers"]["x-client"];
    assert!(header.as_str().unwrap().starts_with('~'), "{header}");
    assert!(events[0]["ip"].as_str().unwrap().starts_with("203.0."));
    for hidden in ["ann", "203.0.113.9", "secret-key"] {
        assert!(!recent["events"].to_string().contains(hidden), "{recent}");
    }
    let last = get(&service, "/v1/recent?n=1");
    assert_eq!(last["events"], json!([events[2]]));
    // They can be tried as they are.
    let rules = RULES.replace("capacity: 3", "capacity: 1");
    let tried = post(
        &service,
        "/v1/simulate",
        &json!({ "rules": rules, "events": events }),
    );
    assert_eq!(tried["changes"]["newly_denied"], 1);

    let config = "admin: { record: true }\ntelemetry: { identities: true }\n";
    let service = Service::start(&[], &format!("{config}{RULES}"));
    check(&service, "ann");
    let named = get(&service, "/v1/recent");
    assert_eq!(named["events"][0]["user"], "ann");
    assert_eq!(named["events"][0]["headers"]["x-client"], "app");
    assert_eq!(named["identities"], true);
    assert!(!named.to_string().contains("secret-key"));
}

#[test]
fn recorded_requests_show_only_the_values_that_rules_match() {
    let rules = r#"
keys: { hash_keys: all }
admin: { record: true }
rule_sets:
  api:
    rules:
      - { id: a, match: { headers: { x-plan: free }, attributes: { kind: read } }, key: ["header:x-tenant"], bands: [ 9/h ] }
  paths:
    rules:
      - { id: p, key: [path], bands: [ 9/h ] }
"#;
    let service = Service::start(&[], rules);
    let request = json!({
        "rule_set": "api", "path": "/x?token=t0ken",
        "headers": { "X-Plan": "free", "x-tenant": "acme", "cookie": "sid=1" },
        "attributes": { "kind": "read", "email": "a@example.com" },
    });
    post(&service, "/v1/check", &request);
    let request = json!({ "rule_set": "paths", "path": "/u/ann" });
    post(&service, "/v1/check", &request);
    let recent = get(&service, "/v1/recent");
    let event = &recent["events"][0];
    assert_eq!(event["path"], "/x");
    assert_eq!(event["headers"]["X-Plan"], "free", "{event}");
    assert_eq!(event["attributes"]["kind"], "read");
    for hidden in ["t0ken", "acme", "sid=1", "example.com", "/u/ann"] {
        assert!(
            !recent["events"].to_string().contains(hidden),
            "{hidden}: {recent}"
        );
    }
}

#[test]
fn recorded_requests_are_decided_as_they_were() {
    let rules = r#"
keys: { ipv6_prefix: 48 }
admin: { record: true }
rule_sets:
  api: { rules: [ { id: ip, scope: per_ip, algorithm: fixed_window, bands: [ { capacity: 3, window: 30d } ] } ] }
"#;
    let service = Service::start(&[], rules);
    for host in 1..=6 {
        let request = json!({ "ip": format!("2001:db8:1:{host}::{host}") });
        let decision = post(&service, "/v1/check", &request);
        assert_eq!(decision["allowed"], host <= 3);
    }
    let events = get(&service, "/v1/recent")["events"].clone();
    let only = &rules[rules.find("rule_sets").unwrap()..];
    let tried = post(
        &service,
        "/v1/simulate",
        &json!({ "rules": only, "events": events }),
    );
    assert_eq!(tried["summary"]["total"]["denied"], 3);
    assert_eq!(tried["changes"]["newly_allowed"], 0);
    assert_eq!(tried["changes"]["newly_denied"], 0);
}

#[test]
fn a_simulation_has_a_bound() {
    let service = Service::start(&[], RULES);
    let rule = |id: usize| json!({ "id": format!("r{id}"), "scope": "per_user", "bands": ["9/h"] });
    let rules: Vec<_> = (0..500).map(rule).collect();
    let rules = json!({ "rule_sets": { "api": { "rules": rules } } }).to_string();
    let events: Vec<_> = (0..1000)
        .map(|t| json!({ "t": t, "user": "ann" }))
        .collect();
    let mut http = service.http();
    let request = json!({ "rules": rules, "events": events }).to_string();
    let refused = http.post("/v1/simulate", &request);
    assert_eq!(refused.status, 400, "{refused:?}");
    let expected = "`events[400]`: the events before it were counted by 200000 rules in all";
    assert!(refused.body.contains(expected), "{refused:?}");
}

#[test]
fn rules_are_tried_without_touching_the_store() {
    let service = Service::start(&[], RULES);
    let event = |t: u64| json!({ "t": t, "user": "ann", "path": "/api/x" });
    let events: Vec<_> = (0..4).map(event).collect();
    let active = post(&service, "/v1/simulate", &json!({ "events": events }));
    let allowed = |answer: &Value| -> Vec<bool> {
        let decisions = answer["decisions"].as_array().unwrap().iter();
        decisions.map(|it| it["allowed"] == true).collect()
    };
    assert_eq!(allowed(&active), [true, true, true, false]);
    assert_eq!(active["changes"], Value::Null);
    assert_eq!(active["summary"]["total"]["denied"], 1);
    let rules = RULES.replace("capacity: 3", "capacity: 1");
    let changed = post(
        &service,
        "/v1/simulate",
        &json!({ "rules": rules, "events": events }),
    );
    assert_eq!(allowed(&changed), [true, false, false, false]);
    assert_eq!(
        changed["changes"],
        json!({
            "newly_denied": 2, "newly_allowed": 0,
            "identities": [{
                "rule_set": "api", "rule": "per-user", "identity": "user=ann",
                "newly_denied": 2, "newly_allowed": 0,
            }],
        })
    );
    let state = get(
        &service,
        "/v1/state?rule_set=api&rule=per-user&identity=ann",
    );
    assert_eq!(state["bands"][0]["remaining"], 3);
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let service = Service::start(&[], RULES);
    let many = vec![json!({ "t": 0 }); 10_001];
    let cases = [
        (json!({}), "`events` is missing"),
        (
            json!({ "events": [{ "t": 0 }, { "t": -1 }] }),
            "`events[1]`: ",
        ),
        (
            json!({ "events": many }),
            "`events` has 10001; at most 10000 are allowed",
        ),
        (
            json!({ "events": [], "rules": "rule_sets: 1" }),
            "the rules are invalid",
        ),
    ];
    for (body, expected) in cases {
        let answer = service.http().post("/v1/simulate", &body.to_string());
        let detail: Value = serde_json::from_str(&answer.body).unwrap();
        let detail = detail["detail"].as_str().unwrap_or_default();
        assert!(
            answer.status == 400 && detail.starts_with(expected),
            "{answer:?}"
        );
    }
    let bad = json!({ "events": [{ "t": 0 }, { "t": -1 }], "lenient": true });
    let lenient = post(&service, "/v1/simulate", &bad);
    assert_eq!(lenient["skipped"], 1);
    let events = json!([{ "t": 0, "rule_set": "none", "user": "ann" }]);
    let missing = post(&service, "/v1/simulate", &json!({ "events": events }));
    let expected = "there is no rule set `none`; its requests were allowed";
    assert_eq!(missing["warnings"], json!([expected]));
}

#[test]
fn the_name_of_a_rule_set_may_have_slashes() {
    let rules = RULES.replace("  api:", "  a/b:");
    let service = Service::start(&[], &rules);
    let events = json!([{ "t": 0, "user": "ann", "path": "/api/x" }]);
    let tried = post(&service, "/v1/simulate", &json!({ "events": events }));
    let rule = &tried["summary"]["rules"][1];
    assert_eq!(
        (&rule["rule_set"], &rule["rule"]),
        (&json!("a/b"), &json!("per-user")),
        "{tried}"
    );
    let consumed = json!({ "rule_id": "a/b/per-user", "identity": "ann" });
    assert_eq!(post(&service, "/v1/consume", &consumed)["allowed"], true);
}
