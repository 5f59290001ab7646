//! Spans and metrics exported by OTLP.

use std::collections::{HashMap, HashSet};
use std::net::TcpListener;

use fluxgate_testkit::{Http, Program, ports, wait_for, wait_until};
use serde_json::Value;

use super::{Metrics, check, end, log_of, objects, with_message};
use crate::gateway::upstream::Upstream;
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
        let is_span = |line: &Value| line.get("span_id").is_some();
        self.received().into_iter().filter(is_span).collect()
    }

    /// Returns the points of a metric received so far, the newest last.
    fn points(&self, metric: &str) -> Vec<Value> {
        let lines = self.received().into_iter();
        lines.filter(|line| line["metric"] == metric).collect()
    }

    fn received(&self) -> Vec<Value> {
        let lines = objects(&self.program.lines());
        let received: Vec<_> = lines.into_iter().skip(1).collect();
        let bad = received.iter().find(|line| line.get("error").is_some());
        assert_eq!(bad, None);
        received
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
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

/// A gateway whose filters limit each user to one request.
fn gateway(otlp: &str, upstream: &str) -> Service {
    let config = config("");
    let rules = config.split_once('\n').unwrap().1;
    Service::start(
        &["gateway"],
        &format!(
            "telemetry: {{ otlp: {otlp} }}
filters: {{ f: {{ rule_set: api }} }}
gateway:
  routes:
    - {{ id: shop, match: {{ path: [/shop] }}, upstreams: ['{upstream}'], filters: [f] }}
{rules}"
        ),
    )
}

#[test]
fn a_request_to_the_gateway_has_a_span_that_the_upstream_continues() {
    let collector = Collector::start();
    let upstream = Upstream::with_body("ok");
    let service = gateway(&format!("'{}'", collector.url()), &upstream.url());
    let sampled = traceparent("01");
    let get = |path: &str, more: &[(&str, &str)]| {
        let headers = [&[("X-User-Id", "ann"), ("User-Agent", "test")], more].concat();
        let mut http = Http::new(service.address("gateway"));
        http.request("GET", path, &headers, "").status
    };
    let traced = [("traceparent", &*sampled)];
    // The second goes through hyper.
    let through_hyper = [traced[0], ("TE", "trailers")];
    assert_eq!(get("/shop", &traced), 200);
    assert_eq!(get("/shop?q=1", &through_hyper), 429);
    assert_eq!(get("/none", &traced), 404);
    assert_eq!(get("/shop", &[]), 429);
    let not_sampled = traceparent("00");
    assert_eq!(get("/shop", &[("traceparent", &not_sampled)]), 429);
    let spans = wait_for("the spans", || {
        Some(collector.spans()).filter(|spans| spans.len() >= 5)
    });
    assert_eq!(spans.len(), 5, "{spans:#?}");
    let of = |name: &str, status: u64| {
        let is_it = |it: &&Value| {
            it["name"] == name && it["attributes"]["http.response.status_code"] == status
        };
        spans
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{name} {status}: {spans:#?}"))
    };
    let label = upstream.url().replace("http://", "");
    let allowed = of("GET shop", 200);
    assert_eq!(
        (&allowed["kind"], &allowed["status"]),
        (&2.into(), &0.into())
    );
    assert_eq!(allowed["parent_span_id"], SPAN);
    let mut attributes = allowed["attributes"].clone();
    let id = attributes["fluxgate.request_id"].take();
    assert!(id.is_string());
    assert_eq!(
        attributes,
        serde_json::json!({
            "http.request.method": "GET", "url.path": "/shop", "url.scheme": "http",
            "network.protocol.version": "1.1", "http.response.status_code": 200,
            "http.request.body.size": 0, "http.response.body.size": 2, "http.route": "shop",
            "user_agent.original": "test", "fluxgate.attempts": 1, "fluxgate.upstream": label,
            "fluxgate.outcome": "allowed", "fluxgate.rule_set": "api", "fluxgate.rule": "r",
            "fluxgate.request_id": null,
        })
    );
    // The upstream and the filter continue this span.
    let sent = upstream.only_request();
    let span_id = allowed["span_id"].as_str().unwrap();
    assert_eq!(
        sent.header("traceparent"),
        [format!("00-{TRACE}-{span_id}-01")]
    );
    let checks: Vec<_> = spans
        .iter()
        .filter(|it| it["name"] == "fluxgate.check")
        .collect();
    let denied = of("GET shop", 429);
    assert_eq!(checks.len(), 2);
    for (check, parent) in checks.iter().zip([allowed, denied]) {
        assert_eq!(check["parent_span_id"], parent["span_id"]);
        assert_eq!(
            (&check["kind"], &check["flags"]),
            (&1.into(), &0x101.into())
        );
    }
    assert_eq!(denied["attributes"]["fluxgate.outcome"], "denied");
    assert_eq!(denied["attributes"].get("fluxgate.upstream"), None);
    let unrouted = of("GET", 404);
    assert_eq!(unrouted["attributes"].get("http.route"), None);
    assert!(spans.iter().all(|span| span["trace_id"] == TRACE));
}

#[test]
fn a_trace_that_is_not_exported_passes_unchanged() {
    let upstream = Upstream::with_body("ok");
    let service = gateway("null", &upstream.url());
    let sampled = traceparent("01");
    let mut http = Http::new(service.address("gateway"));
    http.request("GET", "/shop", &[("traceparent", &sampled)], "");
    assert_eq!(upstream.only_request().header("traceparent"), [sampled]);
}

#[test]
fn metrics_are_exported_with_the_names_of_opentelemetry_and_our_own() {
    let collector = Collector::start();
    let upstream = Upstream::with_body("ok");
    let otlp = format!("{{ url: '{}', interval: 200ms }}", collector.url());
    let service = gateway(&otlp, &upstream.url());
    let mut http = Http::new(service.address("gateway"));
    let user = [("X-User-Id", "ann")];
    for (method, path, status) in [
        ("GET", "/shop", 200),
        ("GET", "/shop", 429),
        ("POST", "/shop", 429),
        ("POST", "/shop", 429),
        ("BREW", "/none", 404),
    ] {
        assert_eq!(http.request(method, path, &user, "").status, status);
    }
    let duration = "http.server.request.duration";
    let points = wait_for("all requests are exported", || {
        let mut points = collector.points(duration);
        // The last export.
        let last = points.last()?["time"].clone();
        points.retain(|it| it["time"] == last);
        let counts = points.iter().map(|it| it["count"].as_u64().unwrap());
        Some(points.clone()).filter(|_| counts.sum::<u64>() == 5)
    });
    let seen: HashMap<_, _> = points
        .iter()
        .map(|point| {
            assert_eq!(
                (&point["kind"], &point["unit"]),
                (&"histogram".into(), &"s".into())
            );
            assert_eq!(point["resource"]["service.name"], "fluxgate");
            assert_eq!(point["path"], "/v1/metrics");
            assert!(point["start"].as_u64() < point["time"].as_u64());
            let sum = point["sum"].as_f64().unwrap();
            assert!(sum > 0.0 && sum < 60.0, "{point}");
            let it = &point["attributes"];
            assert_eq!(
                (&it["url.scheme"], &it["network.protocol.version"]),
                (&"http".into(), &"1.1".into())
            );
            let text = |name: &str| it[name].as_str().map(str::to_owned);
            let key = (
                text("http.request.method").unwrap(),
                it["http.response.status_code"].as_u64().unwrap(),
                text("http.route"),
            );
            (key, point["count"].as_u64().unwrap())
        })
        .collect();
    let shop = Some("shop".to_owned());
    let expected = [
        (("GET".to_owned(), 200, shop.clone()), 1),
        (("GET".to_owned(), 429, shop.clone()), 1),
        (("POST".to_owned(), 429, shop), 2),
        (("_OTHER".to_owned(), 404, None), 1),
    ];
    assert_eq!(seen, HashMap::from(expected));

    // Our own have the names that they have for Prometheus.
    let last = |metric: &str, attribute: &str, value: &str| {
        let points = collector.points(metric);
        let mut of = points
            .into_iter()
            .filter(|it| it["attributes"][attribute] == value);
        of.next_back().unwrap_or_else(|| panic!("{metric}"))
    };
    let denied = last("fluxgate_decisions_total", "outcome", "denied");
    assert_eq!(
        (&denied["kind"], &denied["value"]),
        (&"sum".into(), &3.into())
    );
    let label = upstream.url().replace("http://", "");
    let up = last("fluxgate_upstream_up", "upstream", &label);
    assert_eq!((&up["kind"], &up["value"]), (&"gauge".into(), &1.into()));
    let took = last("fluxgate_gateway_request_duration_seconds", "route", "shop");
    assert_eq!(
        (&took["kind"], &took["count"]),
        (&"histogram".into(), &4.into())
    );
    let text = service.http().get("/metrics").body;
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in names {
        let starts = ["{", " ", "_count{", "_count "].map(|end| format!("{name}{end}"));
        let is_sample = |line: &str| starts.iter().any(|start| line.starts_with(start));
        if text.lines().any(is_sample) {
            wait_until(name, || !collector.points(name).is_empty());
        }
    }

    // The last values are sent on exit.
    http.request("DELETE", "/shop", &user, "");
    end(&service);
    wait_until("the last request is exported", || {
        let points = collector.points(duration);
        points
            .iter()
            .any(|it| it["attributes"]["http.request.method"] == "DELETE")
    });
}

#[test]
fn exports_of_metrics_that_fail_are_counted() {
    let closed = ports::free();
    let url = format!("http://{}", closed.addr());
    let service = gateway(
        &format!("{{ url: '{url}', interval: 50ms }}"),
        "http://127.0.0.1:1",
    );
    wait_until("failures are counted", || {
        Metrics::of(&service).get("fluxgate_metric_exports_failed_total") > 2
    });
    assert_eq!(
        with_message(&log_of(&service), "cannot send metrics").len(),
        1
    );
    // Spans only.
    let off = gateway(
        &format!("{{ url: '{url}', metrics: false, interval: 50ms }}"),
        "http://127.0.0.1:1",
    );
    check(&off, &[], r#"{"user":"ann"}"#);
    assert_eq!(
        Metrics::of(&off).get("fluxgate_metric_exports_failed_total"),
        0
    );
    end(&off);
    end(&service);
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
