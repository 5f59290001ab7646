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
