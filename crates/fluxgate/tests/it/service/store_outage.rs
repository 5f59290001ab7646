//! Decisions while the store is down: limits that come with the call, and denials by
//! `on_error: deny`.

use fluxgate_testkit::{Answer, Cli, Http, RedisServer, wait_until};
use serde_json::{Value, json};

use super::Service;
use super::telemetry::Metrics;

const CONSUME: &str =
    r#"{"rule_id":"mail","identity":"ann","capacity":2,"refill_tokens_per_second":0.001}"#;
const REDUCED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Starts a service and waits until its store answers.
fn start(server: &RedisServer, listeners: &[&str], config: &str) -> Service {
    let url = server.url();
    let store = format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n");
    let service = Service::start(listeners, &(store + config));
    wait_until("the store answers", || {
        let mut http = service.http();
        let warm = CONSUME.replace("ann", "warm");
        !http.post("/v1/consume", &warm).body.contains("outcome")
    });
    service
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn consume(http: &mut Http) -> Value {
    let answer = http.post("/v1/consume", CONSUME);
    assert_eq!(answer.status, 200);
    json_of(&answer)
}

fn throttle(cli: &mut Cli, key: &str) -> Vec<i64> {
    let reply = cli.command(&["CL.THROTTLE", key, "1", "1", "1000"]);
    reply.array().iter().map(|number| number.int()).collect()
}

/// Returns the increase of the samples that start with `start`.
fn increase(service: &Service, before: &Metrics, start: &str) -> u64 {
    Metrics::of(service).sum(start) - before.sum(start)
}

#[test]
fn limits_that_come_with_the_call_decide_locally_by_default() {
    for config in [
        "rule_sets: {}\n",
        "call_limits: { on_error: local }\nrule_sets: {}\n",
    ] {
        let server = RedisServer::start();
        let service = start(&server, &["resp"], config);
        let (mut http, mut cli) = (service.http(), cli_of(&service));
        server.kill();
        let before = Metrics::of(&service);
        let allowed = |consumed: &Value| consumed["allowed"].as_bool().unwrap();
        let consumed: Vec<_> = (0..3).map(|_| consume(&mut http)).collect();
        assert_eq!(
            consumed.iter().map(allowed).collect::<Vec<_>>(),
            [true, true, false]
        );
        for consumed in &consumed {
            assert_eq!(consumed["outcome"], "fallback", "{consumed}");
        }
        let throttled: Vec<_> = (0..3).map(|_| throttle(&mut cli, "k")[0]).collect();
        assert_eq!(throttled, [0, 0, 1]);
        assert_eq!(
            increase(&service, &before, "fluxgate_fallback_decisions_total"),
            6
        );
        assert_eq!(increase(&service, &before, "fluxgate_failclosed_total{"), 0);
    }
}

#[test]
fn limits_that_come_with_the_call_can_fail_closed() {
    let server = RedisServer::start();
    let service = start(
        &server,
        &["resp"],
        "call_limits: { on_error: deny }\nrule_sets: {}\n",
    );
    let (mut http, mut cli) = (service.http(), cli_of(&service));
    assert_eq!(
        consume(&mut http),
        json!({ "allowed": true, "retry_after_ms": 0, "remaining": 1 })
    );
    assert_eq!(throttle(&mut cli, "k"), [0, 2, 1, -1, 1000]);
    server.kill();
    let before = Metrics::of(&service);
    for _ in 0..3 {
        assert_eq!(
            consume(&mut http),
            json!({ "allowed": false, "retry_after_ms": 1000, "remaining": null, "outcome": "failed_closed" })
        );
        // The remaining units are unknown: -1, unlike for a used up limit.
        assert_eq!(throttle(&mut cli, "k"), [1, 2, -1, 1, -1]);
    }
    assert_eq!(increase(&service, &before, "fluxgate_failclosed_total{"), 6);
    assert_eq!(
        increase(&service, &before, "fluxgate_fallback_decisions_total"),
        0
    );
    let closed = "fluxgate_decisions_total{rule_set=\"\",rule=\"\",outcome=\"failed_closed\"}";
    assert_eq!(increase(&service, &before, closed), 6);
    server.restart();
    wait_until("the store is back", || throttle(&mut cli, "k")[2] >= 0);
}

#[test]
fn limits_that_come_with_the_call_can_fail_open() {
    let server = RedisServer::start();
    let service = start(
        &server,
        &["resp"],
        "call_limits: { on_error: allow }\nrule_sets: {}\n",
    );
    let (mut http, mut cli) = (service.http(), cli_of(&service));
    server.kill();
    let before = Metrics::of(&service);
    for _ in 0..5 {
        assert_eq!(
            consume(&mut http),
            json!({ "allowed": true, "retry_after_ms": 0, "remaining": null, "outcome": "failed_open" })
        );
        assert_eq!(throttle(&mut cli, "k"), [0, 2, -1, -1, -1]);
    }
    let open = "fluxgate_decisions_total{rule_set=\"\",rule=\"\",outcome=\"failed_open\"}";
    assert_eq!(increase(&service, &before, open), 10);
    assert_eq!(increase(&service, &before, "fluxgate_failclosed_total{"), 0);
}

/// Otherwise the service would deny everything until the store starts.
#[test]
fn a_service_whose_call_limits_need_the_store_is_not_ready_without_it() {
    let closed = fluxgate_testkit::ports::free();
    for (on_error, status) in [("deny", 503), ("local", 200)] {
        let dir = crate::support::Dir::new();
        dir.write(
            "fluxgate.yaml",
            format!(
                "listen: {{ api: '127.0.0.1:0' }}\nstore: {{ redis: {{ url: 'redis://{}' }} }}\n\
                 call_limits: {{ on_error: {on_error} }}\nrule_sets: {{}}\n",
                closed.addr()
            ),
        );
        let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
        wait_until("the service has rules", || {
            let ready = service.http().get("/readyz");
            ready.status == status
        });
    }
}

/// A rule set that denies when the store fails, used by two filters.
const FAIL_CLOSED: &str = r#"
filters:
  main: { rule_set: api }
  old: { rule_set: api, failed_closed_status: 429 }
gateway:
  routes:
    - { id: old, match: { path: ["/old/**"] }, upstreams: [echo], filters: [old] }
    - { id: all, upstreams: [echo], filters: [main] }
rule_sets:
  api:
    on_error: deny
    rules: [ { id: r, scope: global, bands: [ { capacity: 100, window: 1h } ] } ]
"#;

#[track_caller]
fn assert_reduced_capacity(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("application/problem+json"), "{answer:?}");
    for name in [
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
    ] {
        assert_eq!(answer.header(name), None, "{answer:?}");
    }
    let body = json_of(answer);
    assert_eq!(
        (&body["type"], &body["status"]),
        (&json!(REDUCED), &json!(503))
    );
    assert_eq!(body["outcome"], "failed_closed");
    assert_eq!(
        (&body["retry_after_ms"], &body["violated-policies"]),
        (&json!(1000), &json!([]))
    );
}

#[track_caller]
fn assert_quota_exceeded(answer: &Answer) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
    let body = json_of(answer);
    assert_eq!(
        (&body["type"], &body["status"]),
        (&json!(EXCEEDED), &json!(429))
    );
}

#[test]
fn a_failed_closed_denial_is_503_at_the_gateway() {
    let server = RedisServer::start();
    let service = start(&server, &["gateway"], FAIL_CLOSED);
    let mut http = Http::new(service.address("gateway"));
    assert_eq!(http.get("/x").status, 200);
    server.kill();
    for _ in 0..2 {
        assert_reduced_capacity(&http.get("/x"));
        assert_quota_exceeded(&http.get("/old/x"));
        // The fast path does not take chunked bodies.
        let chunked = |path: &str| {
            let mut http = Http::new(service.address("gateway"));
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            );
            http.send_raw(head.as_bytes()).unwrap();
            http.read_answer(false).unwrap()
        };
        assert_reduced_capacity(&chunked("/x"));
        assert_quota_exceeded(&chunked("/old/x"));
    }
}

#[test]
fn a_failed_closed_denial_is_reported_to_forward_auth() {
    let server = RedisServer::start();
    let service = start(&server, &[], FAIL_CLOSED);
    let mut http = service.http();
    server.kill();
    let mut forward_auth = |query: &str| {
        let headers = [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/x")];
        http.request("GET", &format!("/v1/forward_auth?{query}"), &headers, "")
    };
    assert_reduced_capacity(&forward_auth("filter=main"));
    assert_quota_exceeded(&forward_auth("filter=old"));
    // nginx treats other statuses than 401 and 403 as errors, and may allow the request.
    for filter in ["main", "old"] {
        let answer = forward_auth(&format!("filter={filter}&denied=403"));
        assert_eq!((answer.status, &*answer.body), (403, ""));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("x-fluxgate-outcome"), Some("failed_closed"));
    }
}

#[test]
fn a_failed_closed_check_is_200_unless_the_query_requests_a_status() {
    let server = RedisServer::start();
    let service = start(&server, &["resp"], FAIL_CLOSED);
    let mut http = service.http();
    let mut cli = cli_of(&service);
    server.kill();
    let mut check = |query: &str| http.post(&format!("/v1/check{query}"), r#"{"rule_set":"api"}"#);
    let plain = check("");
    assert_eq!(plain.status, 200);
    let body = json_of(&plain);
    assert_eq!(
        (&body["allowed"], &body["outcome"]),
        (&json!(false), &json!("failed_closed"))
    );
    assert_eq!(plain.header("ratelimit"), None);
    assert_reduced_capacity(&check("?status=true"));
    assert_quota_exceeded(&check("?status=true&failed_closed_status=429"));
    assert_eq!(check("?status=true&failed_closed_status=500").status, 400);
    let batch = http.post("/v1/check/batch", r#"{"checks":[{"rule_set":"api"}]}"#);
    assert_eq!(json_of(&batch)["decisions"][0]["outcome"], "failed_closed");
    // A charge by the name of a rule.
    let rule = http.post("/v1/consume", r#"{"rule_id":"api/r"}"#);
    assert_eq!(
        json_of(&rule),
        json!({ "allowed": false, "retry_after_ms": 1000, "remaining": null, "outcome": "failed_closed" })
    );
    let reply = cli.command(&["FG.CHECK", "api"]);
    let reply = reply.array();
    assert_eq!((reply[0].int(), &*reply[8].text()), (0, "failed_closed"));
}

fn cli_of(service: &Service) -> Cli {
    Cli::connect(service.address("resp")).unwrap()
}
