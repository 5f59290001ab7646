//! The access log: one line for each request, whatever becomes of it.

use std::fs;
use std::io::Write as _;

use fluxgate_testkit::{RawClient, wait_for};
use serde_json::{Value, json};

use super::*;

/// A header that sends a request through hyper instead of the fast path.
const HYPER: (&str, &str) = ("TE", "trailers");

/// Starts a gateway with an access log, and a limited route to this upstream.
fn logged(upstream: &Upstream, access_log: &str, more: &str) -> Service {
    let route = route(
        "api",
        "match: { path: [/api/**] }, filters: [main],",
        &[upstream],
    );
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}
gateway:
  access_log: {access_log}
  routes:
    - {route}
rule_sets: {{ s: {{ rules: [ {{ id: r, scope: per_user, bands: [ {{ capacity: 1, window: 1h }} ] }} ] }} }}
{more}"
    );
    Service::start(&["gateway"], &config)
}

/// Returns the lines of a log.
fn lines(service: &Service, file: &str) -> Vec<Value> {
    let text = fs::read_to_string(service.dir.path(file)).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[track_caller]
fn wait_for_lines(service: &Service, file: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} lines"), || {
        Some(lines(service, file)).filter(|lines| lines.len() >= count)
    })
}

#[test]
fn every_request_is_one_line_on_both_transports() {
    let upstream = Upstream::with_body("hello");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let service = logged(
        &upstream,
        "{ file: access.log }",
        "telemetry: { identities: true }\n",
    );
    let label = upstream.url().replace("http://", "");
    for (transport, more) in [("fast", None), ("hyper", Some(HYPER))] {
        let user = ("X-User-Id", transport);
        let ids = [
            ("X-Request-Id", transport),
            ("traceparent", trace),
            ("User-Agent", "a\"b"),
        ];
        let mut http = client(&service);
        let mut send = |method: &str, path: &str, body: &str| {
            let headers: Vec<_> = [user].into_iter().chain(ids).chain(more).collect();
            http.request(method, path, &headers, body).status
        };
        assert_eq!(send("POST", "/api/x?key=secret", "12345678"), 200);
        assert_eq!(send("GET", "/api/y", ""), 429);
        assert_eq!(send("GET", "/none", ""), 404);
        let file = "access.log";
        let lines = wait_for(transport, || {
            let mut lines = lines(&service, file);
            lines.retain(|line| line["request_id"] == transport);
            Some(lines).filter(|lines| lines.len() == 3)
        });
        let [passed, denied, unrouted] = &lines[..] else {
            panic!()
        };
        let names: Vec<_> = passed.as_object().unwrap().keys().cloned().collect();
        let mut expected: Vec<_> =
            "time request_id trace_id route method path host protocol status \
            bytes_in bytes_out duration_ms upstream upstream_ms attempts client_ip rule_set rule \
            outcome user_agent error"
                .split_whitespace()
                .map(str::to_owned)
                .collect();
        expected.sort();
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(sorted, expected);
        for (line, name, value) in [
            (
                passed,
                "trace_id",
                json!("4bf92f3577b34da6a3ce929d0e0e4736"),
            ),
            (passed, "route", json!("api")),
            (passed, "method", json!("POST")),
            // Queries may hold secrets.
            (passed, "path", json!("/api/x")),
            (passed, "protocol", json!("HTTP/1.1")),
            (passed, "status", json!(200)),
            (passed, "bytes_in", json!(8)),
            (passed, "bytes_out", json!(5)),
            (passed, "upstream", json!(label)),
            (passed, "attempts", json!(1)),
            (passed, "client_ip", json!("127.0.0.1")),
            (passed, "rule_set", json!("s")),
            (passed, "rule", json!("r")),
            (passed, "outcome", json!("allowed")),
            (passed, "user_agent", json!("a\"b")),
            (passed, "error", Value::Null),
            (denied, "status", json!(429)),
            (denied, "outcome", json!("denied")),
            (denied, "upstream", Value::Null),
            (denied, "upstream_ms", Value::Null),
            (denied, "attempts", json!(0)),
            (unrouted, "status", json!(404)),
            (unrouted, "route", Value::Null),
            (unrouted, "outcome", Value::Null),
            (unrouted, "error", json!("no route matches")),
        ] {
            assert_eq!(line[name], value, "{transport} {name}: {line}");
        }
        let host = passed["host"].as_str().unwrap();
        assert!(!host.is_empty(), "{passed}");
        let [all, of_upstream] = ["duration_ms", "upstream_ms"].map(|it| passed[it].as_f64());
        assert!(all >= of_upstream && of_upstream > Some(0.0), "{passed}");
        assert!(denied["bytes_out"].as_u64() > Some(0), "{denied}");
    }
}

#[test]
fn failures_have_their_reason_and_addresses_a_pseudonym() {
    let upstream = Upstream::start(|request, stream| {
        if request.request_line().contains("/api/short") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
        }
        false
    });
    let service = logged(&upstream, "{ file: access.log }", "");
    for (index, headers) in [&[][..], &[HYPER]].into_iter().enumerate() {
        for path in ["/api/dead", "/api/short"] {
            let user = format!("{path}{index}");
            let headers: Vec<_> = { headers.iter().copied() }
                .chain([("X-User-Id", &*user)])
                .collect();
            let _ = client(&service).try_request("GET", path, &headers, "");
        }
    }
    // hyper answers what cannot be read at all.
    let mut raw = RawClient::connect(service.address("gateway"));
    raw.send("GET / HTTP/1.1\r\nbad header\r\n\r\n");
    assert_eq!(raw.read_answer().unwrap().status, 400);
    let lines = wait_for_lines(&service, "access.log", 5);
    let of = |path: &str| {
        let lines = lines.iter().filter(|line| line["path"] == path);
        lines.collect::<Vec<_>>()
    };
    let [dead, short] = ["/api/dead", "/api/short"].map(of);
    assert_eq!((dead.len(), short.len()), (2, 2), "{lines:?}");
    for line in dead {
        assert_eq!(line["status"], 502);
        let error = line["error"].as_str().unwrap();
        assert!(
            error.starts_with("the upstream sent no response"),
            "{error}"
        );
        assert_eq!(line["attempts"], 1);
    }
    for line in short {
        assert_eq!(
            (&line["status"], &line["bytes_out"]),
            (&json!(200), &json!(4)),
            "{line}"
        );
        assert!(
            line["error"].as_str().unwrap().contains("upstream"),
            "{line}"
        );
    }
    let unread = lines.iter().find(|line| line["method"].is_null()).unwrap();
    assert_eq!(unread["status"], 400);
    let addresses: Vec<_> = lines
        .iter()
        .map(|line| line["client_ip"].as_str().unwrap())
        .collect();
    let is_same = addresses
        .iter()
        .all(|it| it.starts_with('~') && *it == addresses[0]);
    assert!(is_same, "{addresses:?}");
}

#[test]
fn the_file_is_opened_again_on_sighup() {
    let upstream = Upstream::with_body("ok");
    let service = logged(&upstream, "{ file: access.log }", "");
    client(&service).get("/none");
    wait_for_lines(&service, "access.log", 1);
    let (old, new) = (
        service.dir.path("access.log.1"),
        service.dir.path("access.log"),
    );
    fs::rename(&new, &old).unwrap();
    client(&service).get("/none");
    wait_for_lines(&service, "access.log.1", 2);
    service.program.signal("HUP");
    service.wait_for_log("the access log was opened again");
    client(&service).get("/none");
    wait_for_lines(&service, "access.log", 1);
    assert_eq!(lines(&service, "access.log.1").len(), 2);
}

#[test]
fn only_a_share_is_logged() {
    let upstream = Upstream::with_body("ok");
    let service = logged(&upstream, "{ file: access.log, sample: 50% }", "");
    // Each thread logs every second request.
    let mut http = client(&service);
    for _ in 0..10 {
        http.get("/none");
    }
    assert_eq!(wait_for_lines(&service, "access.log", 5).len(), 5);
}

/// Nothing can be written to `/dev/full`.
#[test]
fn a_full_disk_loses_lines_and_no_requests() {
    let upstream = Upstream::with_body("ok");
    let service = logged(&upstream, "{ file: /dev/full }", "");
    let path = format!("/none/{}", "x".repeat(1000));
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {path}\r\n\r\n");
    let lost = || {
        let metrics = service.http().get("/metrics").body;
        let name = "fluxgate_access_log_lost_total ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().parse::<u64>().unwrap()
    };
    let mut http = RawClient::connect(service.address("gateway"));
    while lost() == 0 {
        for _ in 0..500 {
            http.send(&request);
            assert_eq!(http.read_answer().unwrap().status, 404);
        }
    }
    service.wait_for_log("lines of the access log were lost");
}

#[test]
fn odd_files_are_refused_at_the_start() {
    let dir = crate::support::Dir::new();
    let config = format!(
        "listen: {{ gateway: '127.0.0.1:0' }}
gateway: {{ access_log: {{ file: '{}' }}, routes: [ {{ id: a, upstreams: [echo] }} ] }}
",
        dir.path("").display()
    );
    dir.write("fluxgate.yaml", config);
    let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(run.stderr.contains("gateway.access_log.file"), "{run:?}");
}
