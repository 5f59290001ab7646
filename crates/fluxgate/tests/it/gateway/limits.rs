//! Filters, and limits on sizes and connections.

use std::io::Write as _;

use fluxgate_testkit::{RawConnection, RawUpstream, RedisServer, wait_until};

use super::*;
use crate::support::Dir;

#[test]
fn a_request_over_the_limit_gets_retry_after_and_is_not_forwarded() {
    let upstream = Upstream::start(|_, stream| {
        let response = "HTTP/1.1 200 OK\r\nx-ratelimit-limit: 99\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(response.as_bytes()).is_ok()
    });
    let filters = "filters: { f: { rule_set: s, exclude: [/free] } }\n";
    let routes = [route("r", "filters: [f],", &[&upstream])];
    let service = start(&routes, &format!("{filters}{ONE_A_MINUTE}"));
    let mut http = client(&service);
    let first = http.get("/");
    assert_eq!(first.status, 200);
    // The gateway replaces the header of the upstream.
    assert_eq!(first.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(first.header("ratelimit-policy"), Some("\"r/b0\";q=1;w=60"));
    let second = http.request("POST", "/", &[("X-Request-Id", "late")], "body");
    assert_problem(&second, 429);
    // A busy machine may take some of the minute.
    let retry: u64 = second.header("retry-after").unwrap().parse().unwrap();
    assert!((30..=60).contains(&retry), "{retry}");
    assert_eq!(second.header("x-ratelimit-remaining"), Some("0"));
    let body: serde_json::Value = serde_json::from_str(&second.body).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["r/b0"]));
    assert_eq!(upstream.requests().len(), 1);
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
fn the_policy_lists_what_is_enforced_for_the_identity_at_its_rate() {
    let upstream = Upstream::with_body("");
    let config = "
filters: { f: { rule_set: s } }
rule_sets:
  s:
    rules:
      - { id: new, rollout: 0%, scope: per_user, bands: [ 1/h ] }
      - { id: dark, mode: shadow, scope: per_user, bands: [ 1/h ] }
      - { id: rate, scope: per_user, bands: [ { rate: 10/h, burst: 2 } ] }
";
    let service = start(&[route("r", "filters: [f],", &[&upstream])], config);
    let policy = Some("\"rate/b0\";q=2;w=720");
    let mut http = client(&service);
    for (status, user) in [(200, "ann"), (200, "ann"), (429, "ann"), (200, "bob")] {
        let answer = http.request("GET", "/", &[("X-User-Id", user)], "");
        assert_eq!(
            (answer.status, answer.header("ratelimit-policy")),
            (status, policy)
        );
        let body = format!(r#"{{"rule_set":"s","user":"{user}","peek":true}}"#);
        let answer = service.http().post("/v1/check", &body);
        assert_eq!(answer.header("ratelimit-policy"), policy, "over the API");
    }
}

#[test]
fn filters_apply_in_order() {
    let upstream = Upstream::with_body("");
    let config = "
filters:
  many: { rule_set: many }
  few: { rule_set: few, include: [/few/**] }
rule_sets:
  many: { rules: [ { id: m, scope: per_ip, bands: [ { capacity: 3, window: 1h } ] } ] }
  few: { rules: [ { id: f, scope: per_ip, bands: [ { capacity: 1, window: 1h } ] } ] }
";
    let routes = [route("r", "filters: [many, few],", &[&upstream])];
    let service = start(&routes, config);
    let mut http = client(&service);
    let first = http.get("/few/x");
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"m/b0\";q=3;w=3600,\"f/b0\";q=1;w=3600")
    );
    assert_eq!(http.get("/few/x").status, 429);
    assert_eq!(http.get("/other").status, 200);
    assert_eq!(http.get("/other").status, 429);
}

#[test]
fn a_waiting_request_is_counted_until_its_client_disconnects() {
    let upstream = Upstream::with_body("");
    let config = "
filters: { f: { rule_set: s, max_concurrent_waits: 1 } }
rule_sets:
  s:
    rules:
      - { id: r, scope: per_ip, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 10m } ] }
";
    let routes = [route("r", "filters: [f],", &[&upstream])];
    let service = start(&routes, config);
    let is_waiting = || {
        service
            .http()
            .get("/metrics")
            .body
            .contains("fluxgate_waiting 1\n")
    };
    assert_eq!(client(&service).get("/").status, 200);
    assert!(!is_waiting());
    let mut waiting = client(&service);
    waiting
        .send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait_until("it waits", is_waiting);
    // `max_concurrent_waits` is 1.
    assert_eq!(client(&service).get("/").status, 429);
    let line = service.wait_for_log("denied");
    assert_eq!(line["wait_refused"], "too_many", "{line}");
    let metrics = service.http().get("/metrics").body;
    let refused = |reason: &str| {
        let sample = format!("fluxgate_waits_refused_total{{reason=\"{reason}\"}} ");
        let mut lines = metrics.lines();
        lines
            .find_map(|line| line.strip_prefix(&sample))
            .map(str::to_owned)
    };
    assert_eq!(refused("too_many").as_deref(), Some("1"));
    assert_eq!(refused("too_long").as_deref(), Some("0"));
    drop(waiting);
    wait_until("it no longer waits", || !is_waiting());
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_path_that_a_filter_skips_is_a_line_at_debug() {
    let upstream = Upstream::with_body("");
    let filters = "filters: { f: { rule_set: s, include: [/a/**], exclude: [/a/free] } }\n";
    let level = "telemetry: { level: debug }\n";
    let routes = [route("r", "filters: [f],", &[&upstream])];
    let service = start(&routes, &format!("{filters}{level}{ONE_A_MINUTE}"));
    let mut http = client(&service);
    for (path, reason) in [("/a/free", "excluded"), ("/b", "not included")] {
        assert_eq!(http.get(path).status, 200);
        let line = service.program.wait_for_line("the line", |line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            (line["path"] == path).then_some(line)
        });
        assert_eq!(line["message"], "the filter skips the request");
        assert_eq!(
            (&line["reason"], &line["rule_set"]),
            (&reason.into(), &"s".into())
        );
    }
}

#[test]
fn before_the_rules_are_loaded_only_routes_without_filters_work() {
    let server = RedisServer::start();
    server.kill();
    let upstream = Upstream::with_body("open");
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
fn a_body_that_is_too_large_is_rejected() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "  limits: { body_bytes: 10 }\n");
    let mut http = client(&service);
    assert_eq!(http.request("POST", "/", &[], "0123456789").status, 200);
    assert_problem(&http.request("POST", "/", &[], "0123456789a"), 413);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_body_that_becomes_too_large_is_rejected_and_never_completed() {
    let upstream = RawUpstream::start(RawConnection::hold);
    let config = format!(
        "gateway:\n  limits: {{ body_bytes: 10 }}\n  routes:\n    \
         - {{ id: all, upstreams: ['http://{}'] }}\n",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    let mut http = client(&service);
    http.send_raw(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n",
    )
    .unwrap();
    let received = |end: &[u8]| {
        let received = upstream.received();
        received.first().is_some_and(|it| it.bytes.ends_with(end))
    };
    wait_until("the first chunk is forwarded", || received(b"01234567\r\n"));
    http.send_raw(b"8\r\n01234567\r\n0\r\n\r\n").unwrap();
    assert_problem(&http.read_answer(false).unwrap(), 413);
    wait_until("the upstream sees the end", || {
        upstream.received()[0].is_over
    });
    let bytes = &upstream.received()[0].bytes;
    let digits = bytes.rsplit(|byte| *byte == b'\n').nth(1).unwrap();
    assert!(digits.len() <= 10, "{}", bytes.escape_ascii());
    assert_eq!(upstream.requests(), []);
}

#[test]
fn a_head_that_is_too_large_is_rejected() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "  limits: { header_bytes: 1000 }\n");
    let mut http = client(&service);
    let header = "a".repeat(900);
    assert_eq!(
        http.request("GET", "/", &[("X-Long", &header)], "").status,
        200
    );
    let header = "a".repeat(1000);
    let response = http.request("GET", "/", &[("X-Long", &header)], "");
    assert_problem(&response, 431);
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(upstream.requests().len(), 1);
    let metrics = service.http().get("/metrics").body;
    let counted = "fluxgate_http_requests_total{listener=\"gateway\",status_class=\"4xx\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn a_connection_over_the_limit_waits_for_another_to_close() {
    let upstream = Upstream::with_body("ok");
    let service = gateway_to(&[&upstream], "  limits: { connections: 1 }\n");
    let mut first = client(&service);
    assert_eq!(first.get("/").status, 200);
    let mut second = client(&service);
    second
        .send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_eq!(first.get("/").status, 200);
    assert_eq!(upstream.requests().len(), 2);
    drop(first);
    assert_eq!(second.read_answer(false).unwrap().status, 200);
}

#[test]
fn a_forbidden_request_gets_the_status_of_its_rule_and_no_limit_headers() {
    let upstream = Upstream::with_body("");
    let config = "
filters: { counted: { rule_set: counted }, guarded: { rule_set: guarded } }
rule_sets:
  counted: { rules: [ { id: c, scope: per_ip, bands: [ { capacity: 99, window: 1m } ] } ] }
  guarded:
    rules:
      - { id: no, action: deny, match: { user: eve } }
      - { id: gone, action: deny, status: 410, match: { path: [\"/old/{id}\"] } }
      - { id: vip, action: allow, match: { user: vip } }
      - { id: g, scope: per_user, bands: [ { capacity: 99, window: 1m } ] }
";
    let routes = [
        route(
            "both",
            "match: { path: [\"/old/**\"] }, filters: [counted, guarded],",
            &[&upstream],
        ),
        route("one", "filters: [guarded],", &[&upstream]),
    ];
    let service = start(&routes, config);
    let mut http = client(&service);
    let mut get = |path: &str, user: &str| http.request("GET", path, &[("X-User-Id", user)], "");
    let limit_headers = |answer: &Answer| {
        let names = [
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-limit",
        ];
        names
            .iter()
            .filter(|name| answer.header(name).is_some())
            .count()
    };
    for (path, user, status) in [("/x", "eve", 403), ("/old/7", "ann", 410)] {
        let refused = get(path, user);
        assert_problem(&refused, status);
        assert_eq!(limit_headers(&refused), 0, "{refused:?}");
        let body: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(body["retry_after_ms"], serde_json::Value::Null);
        let rule = if status == 403 {
            "no/deny"
        } else {
            "gone/deny"
        };
        assert_eq!(body["violated-policies"], serde_json::json!([rule]));
    }
    assert_eq!(upstream.requests().len(), 0);
    let exempt = get("/x", "vip");
    assert_eq!(
        (exempt.status, limit_headers(&exempt)),
        (200, 0),
        "{exempt:?}"
    );
    let counted = get("/x", "ann");
    assert_eq!(
        (counted.status, limit_headers(&counted)),
        (200, 3),
        "{counted:?}"
    );
}
