//! The metrics endpoint.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{Metrics, log_of};
use crate::service::Service;
use crate::support::fetched;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: users, match: { path: [/users] }, scope: per_user, bands: [ { capacity: 2, window: 1h } ] }
      - { id: try, match: { path: [/shadow] }, mode: shadow, scope: per_user, bands: [ { capacity: 1, window: 1h } ] }
      - { id: strict, match: { path: [/strict] }, scope: per_user, on_missing_key: deny, bands: [ { capacity: 1, window: 1h } ] }
";

#[test]
fn every_metric_has_the_expected_value() {
    let service = Service::start(&[], RULES);
    let checks = [
        r#"{"path":"/users","user":"a"}"#,
        r#"{"path":"/users","user":"a"}"#,
        r#"{"path":"/users","user":"a"}"#,
        r#"{"path":"/users","user":"b","cost":3}"#,
        r#"{"path":"/users","user":"c","peek":true}"#,
        r#"{"path":"/shadow","user":"a"}"#,
        r#"{"path":"/shadow","user":"a"}"#,
        r#"{"path":"/shadow","user":"a"}"#,
        r#"{"path":"/strict"}"#,
        r#"{"path":"/other"}"#,
        r#"{"rule_set":"no-such-set","path":"/other"}"#,
    ];
    for body in checks {
        // A new connection each time, so that several cores serve them.
        assert_eq!(service.http().post("/v1/check", body).status, 200);
    }
    let batch = r#"{"checks":[{"path":"/users","user":"d"},{"path":"/users","user":"d"}]}"#;
    assert_eq!(service.http().post("/v1/check/batch", batch).status, 200);
    assert_eq!(service.http().post("/v1/check", "[]").status, 400);
    assert_eq!(service.http().get("/nowhere").status, 404);

    let before = Metrics::of(&service);
    let decisions = |rule: &str| before.all(&format!("fluxgate_decisions_total{{{rule}"));
    let sample = |labels: &str| format!("fluxgate_decisions_total{{{labels}}}");
    let expected = [
        (r#"rule_set="",rule="",outcome="no_rule""#, 1),
        (r#"rule_set="api",rule="",outcome="allowed""#, 1),
        (r#"rule_set="api",rule="",outcome="no_rule""#, 1),
        (r#"rule_set="api",rule="strict",outcome="never""#, 1),
        (r#"rule_set="api",rule="try",outcome="shadow_denied""#, 2),
        (r#"rule_set="api",rule="users",outcome="allowed""#, 4),
        (r#"rule_set="api",rule="users",outcome="denied""#, 1),
        (r#"rule_set="api",rule="users",outcome="never""#, 1),
    ];
    let expected: Vec<_> = expected.map(|(labels, n)| (sample(labels), n)).into();
    let found = decisions("")
        .into_iter()
        .map(|(name, n)| (name.to_owned(), n));
    assert_eq!(found.collect::<Vec<_>>(), expected);

    let sample = |labels: &str| format!("fluxgate_rule_decisions_total{{{labels}}}");
    let expected = [
        (r#"rule_set="",rule="",outcome="no_rule""#, 1),
        (r#"rule_set="api",rule="",outcome="no_rule""#, 1),
        (r#"rule_set="api",rule="strict",outcome="never""#, 1),
        (r#"rule_set="api",rule="try",outcome="allowed""#, 1),
        (r#"rule_set="api",rule="try",outcome="shadow_denied""#, 2),
        (r#"rule_set="api",rule="users",outcome="allowed""#, 4),
        (r#"rule_set="api",rule="users",outcome="denied""#, 1),
        (r#"rule_set="api",rule="users",outcome="never""#, 1),
    ];
    let expected: Vec<_> = expected.map(|(labels, n)| (sample(labels), n)).into();
    let found = { before.all("fluxgate_rule_decisions_total{").into_iter() }
        .map(|(name, n)| (name.to_owned(), n));
    assert_eq!(found.collect::<Vec<_>>(), expected);

    let name = "fluxgate_decision_duration_seconds";
    assert_eq!(before.get(&format!("{name}_count")), 12);
    assert_eq!(before.get(&format!("{name}_bucket{{le=\"+Inf\"}}")), 12);
    assert_eq!(before.get(&format!("{name}_bucket{{le=\"1\"}}")), 12);
    let api = |class: &str| {
        before.get(&format!(
            "fluxgate_http_requests_total{{listener=\"api\",status_class=\"{class}\"}}"
        ))
    };
    assert_eq!(api("4xx"), 2);
    assert!(api("2xx") >= 13);
    for name in ["fluxgate_failclosed_total", "fluxgate_store_errors_total"] {
        let samples = before.0.keys().filter(|key| key.starts_with(name));
        assert_eq!(samples.count(), 13);
        assert_eq!(before.sum(name), 0);
    }
    for name in [
        "fluxgate_fallback_decisions_total",
        "fluxgate_waiting",
        "fluxgate_breaker_state",
        "fluxgate_store_script_reloads_total",
        "fluxgate_store_failovers_total",
        "fluxgate_log_lines_dropped_total",
    ] {
        assert_eq!(before.get(name), 0, "{name}");
    }
    assert_eq!(before.get("fluxgate_config_last_reload_successful"), 1);
    assert!(before.get("fluxgate_config_last_reload_success_timestamp_seconds") > 1_700_000_000);
    assert!(before.get("process_resident_memory_bytes") > 1_000_000);
    assert_eq!(before.sum("fluxgate_build_info{version="), 1);
    // The counters of users `a` and `d`, and of `a` in shadow mode.
    assert_eq!(before.get("fluxgate_memory_store_keys"), 3);
}

#[test]
fn promtool_finds_no_problems() {
    let service = Service::start(&[], RULES);
    for body in [r#"{"path":"/users","user":"a"}"#, r#"{"path":"/other"}"#] {
        service.http().post("/v1/check", body);
    }
    let answer = service.http().get("/metrics");
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let mut promtool = Command::new(fetched("FLUXGATE_PROMTOOL", "promtool/usr/bin/promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(answer.body.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let problems = [output.stdout, output.stderr].concat();
    let problems = String::from_utf8(problems).unwrap();
    assert!(output.status.success() && problems.is_empty(), "{problems}");
}

#[test]
fn metrics_and_logs_contain_no_identities() {
    let config = "
telemetry: { level: trace }
rule_sets:
  api:
    rules:
      - { id: ip, scope: per_ip, bands: [ { capacity: 1, window: 1h } ] }
      - { id: key, scope: per_api_key, bands: [ { capacity: 1, window: 1h } ] }
      - { id: all, key: [user, path, method, 'header:X-Who', 'attr:who'], bands: [ { capacity: 1, window: 1h } ] }
";
    let service = Service::start(&[], config);
    let body = r#"{"ip":"203.0.113.77","user":"marked-user","api_key":"marked-key-0123456789",
        "method":"MARKED","path":"/marked-path","headers":{"X-Who":"marked-header"},
        "attributes":{"who":"marked-attribute"}}"#;
    let headers = [("User-Agent", "marked-agent"), ("X-Other", "marked-other")];
    for _ in 0..5 {
        let answer = service.http().request("POST", "/v1/check", &headers, body);
        assert_eq!(answer.status, 200);
    }
    service.http().get("/marked-resource?marked-query");
    let set = r#"{"rule_set":"marked-set"}"#;
    assert_eq!(service.http().post("/v1/check", set).status, 200);
    let metrics = service.http().get("/metrics").body.to_lowercase();
    assert!(
        !metrics.contains("marked") && !metrics.contains("203.0.113"),
        "{metrics}"
    );
    service.program.wait_for_line("a denial", |line| {
        line.contains("\"message\":\"denied\"").then_some(())
    });
    for line in log_of(&service) {
        // This line names the missing rule set.
        if line["message"] != "there is no such rule set" {
            let line = line.to_string().to_lowercase();
            assert!(
                !line.contains("marked") && !line.contains("203.0.113"),
                "{line}"
            );
        }
    }
}
