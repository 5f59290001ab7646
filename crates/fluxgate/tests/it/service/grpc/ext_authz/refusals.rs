//! Refusals: those of the gateway, for requests of HTTP and of gRPC.

use fluxgate_testkit::{Http, RedisServer};
use serde_json::json;

use super::{Answer, Described};
use crate::service::Service;
use crate::service::grpc::Client;
use crate::support::Dir;

const CONFIG: &str = r#"
filters:
  main:
    rule_set: api
    identity: { user: "jwt:sub" }
    jwt: { from: "header:X-Token", secret_file: secret, on_invalid: deny }
gateway: { routes: [ { id: all, upstreams: [echo], filters: [main] } ] }
rule_sets:
  api:
    rules:
      - { id: closed, action: deny, status: 451, match: { path: ["/closed"] } }
      - { id: free, action: allow, match: { path: ["/free"] } }
      - { id: dark, mode: shadow, scope: global, bands: [ { id: b, capacity: 1, window: 1h } ] }
      - { id: huge, match: { path: ["/huge"] }, scope: global, cost: 5, bands: [ { id: b, capacity: 4, window: 1h } ] }
      - { id: keyed, match: { path: ["/keyed"] }, scope: per_user, on_missing_key: deny, bands: [ { id: b, capacity: 4, window: 1h } ] }
      - { id: once, match: { path: ["/once"] }, scope: global, bands: [ { id: b, capacity: 1, window: 1h } ] }
"#;

fn start() -> Service {
    let dir = Dir::new();
    dir.write("secret", "a secret that is long enough for HS256");
    Service::start_in(dir, &["grpc", "gateway"], CONFIG)
}

/// Names of headers that depend on the listener or on the time.
const VARYING: [&str; 5] = [
    "date",
    "content-length",
    "connection",
    "x-ratelimit-reset",
    "x-request-id",
];

#[test]
fn refusals_are_those_of_the_gateway() {
    let service = start();
    let mut client = Client::of(&service);
    let mut gateway = Http::new(service.address("gateway"));
    // Takes the one unit.
    assert_eq!(gateway.get("/once").status, 200);
    let grpc = ("content-type", "application/grpc+proto");
    for (target, headers, status, grpc_status) in [
        ("/once", &[][..], 429, "8"),
        ("/closed", &[], 451, "7"),
        ("/huge", &[], 429, "8"),
        ("/keyed", &[], 429, "8"),
        ("/x%00", &[], 400, "3"),
        ("/x", &[("x-token", "bad")], 401, "16"),
        ("/x", &[("x-token", "a"), ("x-token", "b")], 400, "3"),
    ] {
        for is_grpc in [false, true] {
            let mut headers = headers.to_vec();
            headers.extend(is_grpc.then_some(grpc));
            let expected = gateway.request("GET", target, &headers, "");
            if expected.header("connection") == Some("close") {
                gateway = Http::new(service.address("gateway"));
            }
            let request = Described::get(target).raw();
            let request = headers
                .iter()
                .fold(request, |it, (name, value)| it.header(name, value));
            let answer = request.send(&mut client);
            assert_eq!(answer.status(), u64::from(expected.status), "{target}");
            if is_grpc {
                assert_eq!((answer.status(), answer.body()), (200, ""));
                assert_eq!(answer.header("grpc-status"), Some(grpc_status), "{target}");
                assert_eq!(answer.code().to_string(), grpc_status);
            } else {
                assert_eq!(answer.status(), status, "{target}");
                let (mut ours, mut theirs) = (answer.json(), expected_json(&expected));
                for body in [&mut ours, &mut theirs] {
                    if body["retry_after_ms"].is_u64() {
                        body["retry_after_ms"] = json!("varies");
                    }
                }
                assert_eq!(ours, theirs, "{target}");
            }
            assert_same_headers(&answer, &expected, target);
        }
    }
    for (target, has_limit) in [("/free", false), ("/x", false), ("/huge/x", false)] {
        let passed = Described::get(target).send(&mut client);
        assert_eq!(passed.status(), 0, "{target}");
        assert_eq!(passed.header("x-ratelimit-limit").is_some(), has_limit);
    }
}

fn expected_json(answer: &fluxgate_testkit::Answer) -> serde_json::Value {
    serde_json::from_str(&answer.body).unwrap()
}

fn assert_same_headers(answer: &Answer, expected: &fluxgate_testkit::Answer, target: &str) {
    let is_same = |name: &str| !VARYING.contains(&name);
    let mut ours = answer.headers();
    ours.retain(|(name, _)| is_same(name));
    for (name, value) in &ours {
        // A second may pass between the two.
        if ![
            "retry-after",
            "ratelimit",
            "grpc-retry-pushback-ms",
            "grpc-message",
        ]
        .contains(name)
        {
            assert_eq!(expected.header(name), Some(*value), "{target}: {name}");
        }
    }
    let theirs = expected.headers.iter().map(|(name, _)| name.to_lowercase());
    let mut theirs: Vec<_> = theirs.filter(|name| is_same(name)).collect();
    let mut ours: Vec<_> = ours.iter().map(|(name, _)| (*name).to_owned()).collect();
    theirs.sort();
    ours.sort();
    assert_eq!(ours, theirs, "{target}");
}

#[test]
fn a_store_failure_is_not_a_used_up_quota() {
    let store = RedisServer::start();
    let config = format!(
        r#"
store: {{ redis: {{ url: "redis://{}" }} }}
filters:
  main: {{ rule_set: s }}
  old: {{ rule_set: s, failed_closed_status: 429 }}
rule_sets: {{ s: {{ on_error: deny, rules: [ {{ id: r, scope: global, bands: [ {{ capacity: 9, window: 1h }} ] }} ] }} }}
"#,
        store.addr()
    );
    let service = Service::start(&["grpc"], &config);
    store.kill();
    let mut client = Client::of(&service);
    let refused = Described::get("/").filter("main").send(&mut client);
    assert_eq!((refused.code(), refused.status()), (14, 503));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["outcome"], "failed_closed");
    let kind = refused.json()["type"].to_string();
    assert!(kind.contains("temporary-reduced-capacity"), "{kind}");
    let old = Described::get("/").filter("old").send(&mut client);
    assert_eq!((old.code(), old.status()), (8, 429));
    let grpc = Described::get("/")
        .filter("main")
        .header("content-type", "application/grpc")
        .send(&mut client);
    assert_eq!((grpc.code(), grpc.status()), (14, 200));
    assert_eq!(grpc.header("grpc-status"), Some("14"));
}
