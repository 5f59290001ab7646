//! Filters, and bounds on sizes.

use std::io::Write as _;

use fluxgate_testkit::{RedisServer, wait_until};

use super::*;
use crate::support::Dir;

#[test]
fn who_is_over_the_limit_hears_when_to_come_back_and_reaches_nobody() {
    let upstream = Upstream::start(|_, stream| {
        let answer = "HTTP/1.1 200 OK\r\nx-ratelimit-limit: 99\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let filters = "filters: { f: { rule_set: s, exclude: [/free] } }\n";
    let routes = [route("r", "filters: [f],", &[&upstream])];
    let service = start(&routes, &format!("{filters}{ONE_A_MINUTE}"));
    let mut http = client(&service);
    let first = http.get("/");
    assert_eq!(first.status, 200);
    // Ours, in place of what the upstream says.
    assert_eq!(first.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(first.header("ratelimit-policy"), Some("\"r/b0\";q=1;w=60"));
    let second = http.request("POST", "/", &[("X-Request-Id", "late")], "body");
    assert_problem(&second, 429);
    assert_eq!(second.header("retry-after"), Some("60"));
    assert_eq!(second.header("x-ratelimit-remaining"), Some("0"));
    let body: serde_json::Value = serde_json::from_str(&second.body).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["r/b0"]));
    assert_eq!(upstream.seen().len(), 1);
    let free = http.get("/free");
    assert_eq!(
        (free.status, free.header("x-ratelimit-limit")),
        (200, Some("99"))
    );
    let line = service.wait_for_log("denied");
    assert_eq!(
        (&line["listener"], &line["request_id"]),
        (&"gateway".into(), &"late".into())
    );
    let metrics = service.http().get("/metrics").body;
    let denied = "fluxgate_decisions_total{rule_set=\"s\",rule=\"r\",outcome=\"denied\"} 1";
    assert!(metrics.lines().any(|line| line == denied), "{metrics}");
}

#[test]
fn filters_are_asked_one_after_the_other() {
    let upstream = Upstream::saying("");
    let config = "
filters:
  many: { rule_set: many }
  few: { rule_set: few, include: [/few/**] }
rule_sets:
  many: { rules: [ { id: m, scope: per_ip, bands: [ { capacity: 3, window: 1m } ] } ] }
  few: { rules: [ { id: f, scope: per_ip, bands: [ { capacity: 1, window: 1m } ] } ] }
";
    let routes = [route("r", "filters: [many, few],", &[&upstream])];
    let service = start(&routes, config);
    let mut http = client(&service);
    let first = http.get("/few/x");
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"m/b0\";q=3;w=60,\"f/b0\";q=1;w=60")
    );
    assert_eq!(http.get("/few/x").status, 429);
    assert_eq!(http.get("/other").status, 200);
    assert_eq!(http.get("/other").status, 429);
}

#[test]
fn who_has_to_wait_waits_and_is_counted() {
    let upstream = Upstream::saying("");
    let config = "
filters: { f: { rule_set: s, max_concurrent_waits: 1 } }
rule_sets:
  s:
    rules:
      - { id: r, scope: per_ip, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 10m } ] }
";
    let routes = [route("r", "filters: [f],", &[&upstream])];
    let service = start(&routes, config);
    let waiting = || {
        service
            .http()
            .get("/metrics")
            .body
            .contains("fluxgate_waiting 1\n")
    };
    assert_eq!(client(&service).get("/").status, 200);
    assert!(!waiting());
    let mut patient = client(&service);
    patient
        .send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait_until("it waits", waiting);
    // There is one place only.
    assert_eq!(client(&service).get("/").status, 429);
    drop(patient);
    wait_until("who went away waits no more", || !waiting());
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn before_there_are_rules_only_routes_without_filters_are_served() {
    let server = RedisServer::start();
    server.kill();
    let upstream = Upstream::saying("open");
    let dir = Dir::new();
    let limited = route(
        "limited",
        "match: { path: [/limited] }, filters: [f],",
        &[&upstream],
    );
    let open = route("open", "", &[&upstream]);
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ api: \"127.0.0.1:0\", gateway: \"127.0.0.1:0\" }}\n\
             store: {{ redis: {{ url: \"{}\" }} }}\nrules_from: {{ redis: {{}} }}\n\
             filters: {{ f: {{ rule_set: s }} }}\n\
             gateway:\n  routes:\n    - {limited}\n    - {open}\n",
            server.url()
        ),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 2);
    service.wait_for_log("there are no rules yet");
    let mut http = client(&service);
    assert_problem(&http.get("/limited"), 503);
    assert_eq!(http.get("/").body, "open");
}

#[test]
fn a_body_that_is_too_large_is_refused_and_never_finished() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "  limits: { body_bytes: 10 }\n");
    let mut http = client(&service);
    assert_eq!(http.request("POST", "/", &[], "0123456789").status, 200);
    assert_problem(&http.request("POST", "/", &[], "0123456789a"), 413);
    assert_eq!(upstream.seen().len(), 1);
    let mut http = client(&service);
    http.send_raw(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n",
    )
    .unwrap();
    http.send_raw(b"8\r\n01234567\r\n0\r\n\r\n").unwrap();
    assert_problem(&http.read_answer(false).unwrap(), 413);
    wait_until("the upstream notices", || upstream.seen().len() == 2);
    let seen = &upstream.seen()[1];
    assert!(!seen.whole && seen.body.len() <= 10, "{seen:?}");
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "  limits: { header_bytes: 1000 }\n");
    let mut http = client(&service);
    let header = "a".repeat(900);
    assert_eq!(
        http.request("GET", "/", &[("X-Long", &header)], "").status,
        200
    );
    let header = "a".repeat(1000);
    let answer = http.request("GET", "/", &[("X-Long", &header)], "");
    assert_problem(&answer, 431);
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(upstream.seen().len(), 1);
    let metrics = service.http().get("/metrics").body;
    let counted = "fluxgate_http_requests_total{listener=\"gateway\",status_class=\"4xx\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn there_are_only_so_many_connections() {
    let upstream = Upstream::saying("ok");
    let service = before(&[&upstream], "  limits: { connections: 1 }\n");
    let mut first = client(&service);
    assert_eq!(first.get("/").status, 200);
    let mut second = client(&service);
    second
        .send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_eq!(first.get("/").status, 200);
    assert_eq!(upstream.seen().len(), 2);
    drop(first);
    assert_eq!(second.read_answer(false).unwrap().status, 200);
}
