//! Spans exported by OTLP.

use std::collections::HashSet;
use std::net::TcpListener;

use fluxgate_testkit::{Program, ports, wait_for, wait_until};
use serde_json::Value;

use super::{Metrics, check, end, log_of, objects, with_message};
use crate::service::Service;
use crate::support::{project_file, python};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn config(otlp: &str) -> String {
    format!(
        "telemetry: {{ otlp: '{otlp}' }}
rule_sets:
  api:
    rules:
      - {{ id: r, scope: per_user, bands: [ {{ capacity: 1, window: 1h }} ] }}
"
    )
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// A collector that parses spans by OTLP's own definitions.
struct Collector {
    program: Program,
    port: u64,
}

impl Collector {
    fn start() -> Self {
        let program = Program::start(python(), |command| {
            command.arg(project_file(
                "crates/fluxgate/tests/it/service/telemetry/otlp_receiver.py",
            ));
        });
        let port = program.wait_for_line("the port of the collector", |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            line["port"].as_u64()
        });
        Self { program, port }
    }

    /// Returns the spans received so far.
    fn spans(&self) -> Vec<Value> {
        let lines = objects(&self.program.lines());
        let spans: Vec<_> = lines.into_iter().skip(1).collect();
        let bad = spans.iter().find(|span| span.get("error").is_some());
        assert_eq!(bad, None);
        spans
    }
}

#[test]
fn sampled_requests_are_exported_as_valid_spans() {
    let collector = Collector::start();
    let url = format!("http://ann:hush@127.0.0.1:{}", collector.port);
    let service = Service::start(&[], &config(&url));
    let sampled = traceparent("01");
    let headers = [("traceparent", &*sampled), ("X-Request-Id", "my-request")];
    check(&service, &headers, r#"{"user":"ann"}"#);
    check(&service, &headers, r#"{"user":"ann"}"#);
    // These are not sampled.
    check(&service, &[], r#"{"user":"ann"}"#);
    let not_sampled = traceparent("00");
    check(
        &service,
        &[("traceparent", &*not_sampled)],
        r#"{"user":"ann"}"#,
    );
    check(
        &service,
        &[("traceparent", "00-nonsense")],
        r#"{"user":"ann"}"#,
    );

    // The exporter sends them after an interval.
    let spans = wait_for("two spans", || {
        Some(collector.spans()).filter(|spans| spans.len() >= 2)
    });
    let version = env!("CARGO_PKG_VERSION");
    for (span, outcome) in spans.iter().zip(["allowed", "denied"]) {
        let expected = [
            ("path", Value::from("/v1/traces")),
            ("content_type", "application/json".into()),
            ("authorization", "Basic YW5uOmh1c2g=".into()),
            ("scope", "fluxgate".into()),
            ("name", "fluxgate.check".into()),
            ("kind", 2.into()),
            ("trace_id", TRACE.into()),
            ("parent_span_id", SPAN.into()),
            ("flags", 0x301.into()),
            ("status", 0.into()),
        ];
        for (field, value) in expected {
            assert_eq!(span[field], value, "{field}: {span}");
        }
        assert_eq!(
            span["attributes"],
            serde_json::json!({
                "fluxgate.rule_set": "api", "fluxgate.rule": "r", "fluxgate.outcome": outcome,
                "fluxgate.listener": "api", "fluxgate.request_id": "my-request",
            })
        );
        assert_eq!(span["resource"]["service.name"], "fluxgate");
        assert_eq!(span["resource"]["service.version"], version);
        let (start, end) = (
            span["start"].as_u64().unwrap(),
            span["end"].as_u64().unwrap(),
        );
        assert!(start < end && end - start < 30_000_000_000, "{span}");
    }
    wait_until("both are counted", || {
        Metrics::of(&service).get("fluxgate_spans_sent_total") == 2
    });

    // The remaining spans are sent on exit.
    check(&service, &headers, r#"{"user":"bob"}"#);
    let lines = end(&service);
    let spans = wait_for("the last span", || {
        Some(collector.spans()).filter(|spans| spans.len() >= 3)
    });
    assert_eq!(spans.len(), 3);
    let ids: HashSet<_> = spans
        .iter()
        .map(|span| span["span_id"].to_string())
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(lines.iter().all(|line| !line.to_string().contains("hush")));
}

#[test]
fn a_missing_collector_is_logged_once_and_requests_go_on() {
    let closed = ports::free();
    let service = Service::start(&[], &config(&format!("http://{}/path", closed.addr())));
    // Enough for several batches.
    let sent = flood(&service, 2_000);
    wait_until("spans are dropped", || {
        Metrics::of(&service).get("fluxgate_spans_dropped_total") >= 512
    });
    let dropped = Metrics::of(&service).get("fluxgate_spans_dropped_total");
    flood(&service, 2_000);
    wait_until("more are dropped", || {
        Metrics::of(&service).get("fluxgate_spans_dropped_total") >= dropped + 512
    });
    assert_eq!(Metrics::of(&service).get("fluxgate_spans_sent_total"), 0);
    let lines = log_of(&service);
    assert_eq!(with_message(&lines, "cannot send spans").len(), 1);
    assert_eq!(sent, 2_000);
    end(&service);
}

#[test]
fn a_collector_that_never_responds_does_not_block_requests() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let service = Service::start(&[], &config(&format!("http://127.0.0.1:{port}")));
    // More than the queue and one batch together.
    let mut sent = 0;
    wait_until("the queue is full", || {
        sent += flood(&service, 1_000);
        let dropped = Metrics::of(&service).get("fluxgate_spans_dropped_total");
        dropped > 0 && sent > 2_048 + 512
    });
    check(&service, &[], r#"{"user":"ann"}"#);
    end(&service);
}

#[test]
fn https_is_refused() {
    let dir = crate::support::Dir::new();
    dir.write("fluxgate.yaml", config("https://collector.example:4318"));
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(78));
    let output = run.stdout + &run.stderr;
    assert!(
        output.contains("`otlp` must be http://HOST:PORT (https"),
        "{output}"
    );
}

/// Sends traced requests. Returns their number.
fn flood(service: &Service, requests: u64) -> u64 {
    let sampled = traceparent("01");
    let mut http = service.http();
    for _ in 0..requests {
        let headers = [("traceparent", &*sampled)];
        let answer = http.request("POST", "/v1/check", &headers, r#"{"user":"ann"}"#);
        assert_eq!(answer.status, 200);
    }
    requests
}
