//! The audit log: one line for each change.

use super::access::TOKENS;
use super::*;

#[test]
fn every_change_is_logged_with_caller_and_action() {
    let server = RedisServer::start();
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    let config = config(&server.url(), "1h") + "admin: { tokens_file: tokens }\n";
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    let mut call = |method: &str, path: &str, body: &str| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Authorization", "Bearer admin"),
            ("X-Request-Id", "call-7"),
        ];
        http.request(method, path, &headers, body)
    };
    let one = call("PUT", "/v1/rule_sets/api", &set(10));
    let two = call("PUT", "/v1/rule_sets/api", &set(20));
    call("PUT", "/v1/rule_sets/api", "{}");
    call(
        "POST",
        "/v1/refund",
        r#"{"rule_set":"api","rule":"r","identity":"secret-u","units":3}"#,
    );
    call("POST", "/v1/reset", r#"{"rule_set":"api","rule":"r"}"#);
    call("POST", "/v1/rule_sets/api/rules/r/disable", "");
    call("DELETE", "/v1/rule_sets/api", "");
    let lines = service.wait_for_logs("changed", 6);
    assert_eq!(lines.len(), 6, "{lines:#?}");
    for line in &lines {
        assert_eq!(
            (&line["target"], &line["who"]),
            (&json!("audit"), &json!("anna"))
        );
        assert_eq!(
            (&line["rule_set"], &line["request_id"]),
            (&json!("api"), &json!("call-7"))
        );
    }
    let actions: Vec<_> = lines
        .iter()
        .map(|line| line["what"].as_str().unwrap())
        .collect();
    let expected = [
        "put rule set",
        "put rule set",
        "refund",
        "reset",
        "disable rule",
        "delete rule set",
    ];
    assert_eq!(actions, expected);
    let etag = |answer: &Answer| answer.header("etag").unwrap().replace('"', "");
    assert_eq!(lines[0]["etag_before"], Value::Null);
    assert_eq!(lines[0]["etag_after"], etag(&one));
    assert_eq!(
        (&lines[1]["etag_before"], &lines[1]["etag_after"]),
        (&json!(etag(&one)), &json!(etag(&two)))
    );
    assert_eq!(
        (&lines[2]["identity"], &lines[2]["units"]),
        (&json!("(redacted)"), &json!(3))
    );
    assert_eq!(
        (&lines[3]["rule"], &lines[3]["identity"]),
        (&json!("r"), &Value::Null)
    );
    assert!(
        service
            .program
            .lines()
            .iter()
            .all(|line| !line.contains("secret-u"))
    );
}

#[test]
fn identities_are_logged_if_configured_and_api_keys_are_shortened() {
    let config = "telemetry: { identities: true }\n".to_owned()
        + RULES
        + r#"
  keys:
    rules:
      - { id: by-key, scope: per_api_key, bands: [ { capacity: 5, window: 1h } ] }
      - { id: by-both, key: [user, api_key], bands: [ { capacity: 5, window: 1h } ] }
"#;
    let service = Service::start(&[], &config);
    let mut http = service.http();
    let mut lines = 0;
    for (path, set, rule, identity, logged) in [
        ("reset", "api", "per-user", json!("u"), "user=u"),
        ("refund", "api", "all", json!([]), "(everyone)"),
        (
            "refund",
            "keys",
            "by-key",
            json!("0123456789abcdef"),
            "api_key=0123…ef",
        ),
        (
            "reset",
            "keys",
            "by-both",
            json!(["ann", "0123456789abcdef"]),
            "user=ann api_key=0123…ef",
        ),
    ] {
        let mut body = json!({"rule_set": set, "rule": rule, "identity": identity});
        if path == "refund" {
            body["units"] = json!(1);
        }
        let answer = http.post(&format!("/v1/{path}"), &body.to_string());
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        lines += 1;
        let line = service.wait_for_logs("changed", lines).remove(lines - 1);
        assert_eq!(
            (&line["who"], &line["identity"]),
            (&json!("loopback"), &json!(logged))
        );
    }
    let log = service.program.lines();
    assert!(log.iter().all(|line| !line.contains("456789")), "{log:#?}");
}

#[test]
fn a_change_is_logged_with_its_trace() {
    let service = Service::start(&[], RULES);
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let headers = [
        ("Content-Type", "application/json"),
        ("traceparent", &*format!("00-{trace}-{span}-01")),
    ];
    let body = r#"{"rule_set":"api","rule":"all"}"#;
    service.http().request("POST", "/v1/reset", &headers, body);
    let line = service.wait_for_log("changed");
    assert_eq!(
        (&line["trace_id"], &line["span_id"]),
        (&json!(trace), &json!(span))
    );
}

/// Returns the audit trail, the newest entry first.
fn trail(http: &mut Http, query: &str) -> Vec<Value> {
    let answer = json(&http.get(&format!("/v1/audit{query}")));
    answer["entries"].as_array().unwrap().clone()
}

#[test]
fn the_trail_says_who_changed_what_and_why() {
    let server = RedisServer::start();
    for store in [String::new(), store_in(&server)] {
        let service = Service::start(&[], &format!("{store}{RULES}"));
        let mut http = service.http();
        wait_until("identities have handles", || {
            http.get("/v1/state?handle=x").status != 503
        });
        let mut call = |path: &str, body: Value, reason: Option<&str>| {
            let mut headers = vec![("Content-Type", "application/json")];
            headers.extend(reason.map(|reason| ("X-FluxGate-Reason", reason)));
            let answer = http.request("POST", path, &headers, &body.to_string());
            assert_eq!(answer.status, 200, "{answer:?}");
        };
        let ann = json!({ "rule_set": "api", "rule": "per-user", "identity": "ann" });
        let mut refund = ann.clone();
        refund["units"] = json!(3);
        call("/v1/refund", refund, Some("ticket%207:%20%C3%BCber%0Aall"));
        call("/v1/reset", ann.clone(), None);
        call(
            "/v1/reset",
            json!({ "rule_set": "api", "rule": "all" }),
            Some(" "),
        );
        let mut http = service.http();
        let entries = wait_for("all are in the trail", || {
            let entries = trail(&mut http, "");
            (entries.len() == 3).then_some(entries)
        });
        let texts = |field: &str| -> Vec<Value> {
            entries.iter().map(|entry| entry[field].clone()).collect()
        };
        assert_eq!(texts("what"), ["reset", "reset", "refund"]);
        assert_eq!(texts("who"), ["loopback"; 3]);
        assert_eq!(
            texts("reason"),
            [Value::Null, Value::Null, json!("ticket 7: über all")]
        );
        assert_eq!(texts("rule"), ["all", "per-user", "per-user"]);
        assert_eq!(texts("units"), [Value::Null, Value::Null, json!(3)]);
        assert!(entries[0]["identity"].is_null() && entries[1]["reset"].is_u64());
        // As in denials: a pseudonym, and a handle that finds the identity.
        let shown = entries[2]["identity"].as_str().unwrap();
        assert!(
            shown.starts_with("user=") && !shown.contains("ann"),
            "{shown}"
        );
        let handle = entries[2]["handle"].as_str().unwrap();
        let state = json(&http.get(&format!("/v1/state?handle={handle}")));
        assert_eq!(state["bands"][0]["remaining"], 10);
        assert_eq!(trail(&mut http, "?n=1"), entries[..1]);
        for bad in ["?n=0", "?n=1001", "?m=1"] {
            assert_eq!(http.get(&format!("/v1/audit{bad}")).status, 400, "{bad}");
        }
        let line = service.wait_for_logs("changed", 1).remove(0);
        assert_eq!(line["reason"], "ticket 7: über all");
    }
}

#[test]
fn the_trail_is_that_of_the_fleet_and_ends_with_the_record() {
    let server = RedisServer::start();
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    let config = config(&server.url(), "1h") + "admin: { tokens_file: tokens }\n";
    let service = Service::start_in(dir, &[], &config);
    let as_role = |role: &'static str| {
        [
            ("Content-Type", "application/json"),
            ("Authorization", role),
            ("X-FluxGate-Reason", "new plan"),
        ]
    };
    let mut http = service.http();
    let put = http.request(
        "PUT",
        "/v1/rule_sets/api",
        &as_role("Bearer admin"),
        &set(10),
    );
    assert_eq!(put.status, 201);
    assert_eq!(http.get("/v1/audit").status, 401);
    let other = Dir::new();
    other.write("tokens", TOKENS);
    let other = Service::start_in(other, &[], &config);
    let entry = wait_for("another instance shows it", || {
        let headers = as_role("Bearer viewer");
        let answer = other.http().request("GET", "/v1/audit", &headers, "");
        json(&answer)["entries"]
            .as_array()
            .unwrap()
            .first()
            .cloned()
    });
    assert_eq!(
        (&entry["who"], &entry["what"], &entry["reason"]),
        (&json!("anna"), &json!("put rule set"), &json!("new plan"))
    );
    assert_eq!(
        entry["etag_after"],
        put.header("etag").unwrap().replace('"', "")
    );

    let service = Service::start(&[], &format!("history: false\n{RULES}"));
    let answer = service.http().get("/v1/audit");
    assert_eq!(answer.status, 404, "{answer:?}");
}
