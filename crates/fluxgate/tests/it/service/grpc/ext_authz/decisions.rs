//! What a filter reads of a described request.

use fluxgate_testkit::ports;
use serde_json::json;

use super::Described;
use crate::service::Service;
use crate::service::grpc::Client;
use crate::support::Dir;

const ONE_FILTER: &str = r#"
filters:
  main: { rule_set: api, include: ["/api/**"], exclude: ["/api/health"] }
rule_sets:
  api:
    rules:
      - { id: r, scope: per_ip, match: { methods: [POST] }, bands: [ { id: b, capacity: 2, window: 1h } ] }
"#;

#[test]
fn a_request_is_decided_as_envoy_describes_it() {
    let service = Service::start(&["grpc"], ONE_FILTER);
    let mut client = Client::of(&service);
    for (raw, remaining) in [(false, "1"), (true, "0")] {
        let request = Described::new("POST", "/api/x?y").header("a", "b");
        let request = if raw { request.raw() } else { request };
        let passed = request.send(&mut client);
        assert_eq!((passed.code(), passed.status()), (0, 0), "{passed:?}");
        assert_eq!(passed.header("x-ratelimit-remaining"), Some(remaining));
        let policy = passed.header("ratelimit-policy");
        assert_eq!(policy, Some("\"r/b\";q=2;w=3600"));
        assert_eq!(passed.header("retry-after"), None);
        assert_eq!(passed.headers().len(), 5);
        let metadata = &passed.0["metadata"];
        assert_eq!(metadata["rule"], "r/b");
        assert_eq!(metadata["outcome"], "allowed");
        assert_eq!(metadata["remaining"], remaining.parse::<f64>().unwrap());
    }
    let refused = Described::new("POST", "/api/y").send(&mut client);
    assert_eq!((refused.code(), refused.status()), (8, 429));
    let kind = refused.header("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&retry), "{retry}");
    assert_eq!(refused.json()["violated-policies"], json!(["r/b"]));
    assert_eq!(refused.json()["status"], 429);
    assert_eq!(refused.0["metadata"]["outcome"], "denied");
    // Another address, another method, and paths that the filter does not apply to.
    for (method, path, address, is_limited) in [
        ("POST", "/api/x", "192.0.2.2", true),
        ("POST", "/api/x", "2001:db8::1", true),
        ("GET", "/api/x", "192.0.2.1", false),
        ("POST", "/api/health", "192.0.2.1", false),
        ("POST", "/other", "192.0.2.1", false),
    ] {
        let passed = Described::new(method, path)
            .source(address)
            .send(&mut client);
        assert_eq!(passed.status(), 0, "{method} {path}");
        assert_eq!(
            passed.header("ratelimit").is_some(),
            is_limited,
            "{method} {path}"
        );
    }
    let metrics = service.http().get("/metrics").body;
    for line in [
        r#"fluxgate_decisions_total{rule_set="api",rule="r",outcome="denied"} 1"#,
        r#"fluxgate_decisions_total{rule_set="api",rule="r",outcome="allowed"} 4"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn the_call_names_the_filter() {
    let config = r#"
filters:
  first: { rule_set: api, identity: { user: "header:X-Me" }, headers: { legacy: false, ietf: false } }
  second: { rule_set: hosts }
rule_sets:
  api: { rules: [ { id: r, scope: per_user, bands: [ { capacity: 1, window: 1h } ] } ] }
  hosts: { rules: [ { id: r, key: ["header:Host"], bands: [ { capacity: 1, window: 1h } ] } ] }
"#;
    let service = Service::start(&["grpc"], config);
    let mut client = Client::of(&service);
    let first = |user: &str| Described::get("/").filter("first").header("X-Me", user);
    assert_eq!(first("ann").send(&mut client).status(), 0);
    assert_eq!(first("bob").send(&mut client).status(), 0);
    let refused = first("ann").send(&mut client);
    assert_eq!(refused.status(), 429);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("x-ratelimit-limit"), None);
    let second = |host: &str| Described::get("/").filter("second").host(host);
    assert_eq!(second("a.example").send(&mut client).status(), 0);
    assert_eq!(second("b.example").send(&mut client).status(), 0);
    assert_eq!(second("a.example").send(&mut client).status(), 429);
    // Envoy has no header `host`, but others may.
    let other = second("b.example").header("host", "c.example");
    assert_eq!(other.send(&mut client).status(), 400);
    let same = second("b.example").header("host", "b.example");
    assert_eq!(same.send(&mut client).status(), 429);

    let error = |request: Described, client: &mut Client| {
        let (code, message) = request.error(client);
        assert_eq!(code, "INVALID_ARGUMENT");
        message
    };
    assert_eq!(
        error(Described::get("/"), &mut client),
        "the config has several filters: name one in `context_extensions.filter`"
    );
    let unknown = Described::get("/").filter("third");
    assert_eq!(
        error(unknown, &mut client),
        "`context_extensions.filter`: there is no filter `third`"
    );
    let tcp = Described::get("/").filter("first").without_http();
    assert_eq!(
        error(tcp, &mut client),
        "`attributes.request.http` is missing: only HTTP requests are decided"
    );
    // The only filter is the default, but a wrong name is wrong there too.
    let service = Service::start(&["grpc"], ONE_FILTER);
    let mut client = Client::of(&service);
    error(Described::get("/").filter("third"), &mut client);
    let service = Service::start(&["grpc"], "rule_sets: {}\n");
    let mut client = Client::of(&service);
    assert_eq!(
        error(Described::get("/"), &mut client),
        "the config has no `filters`"
    );
}

#[test]
fn the_client_is_the_peer_or_the_rightmost_past_trusted_proxies() {
    let config = "
filters: { main: { rule_set: api, trusted_proxies: [10.0.0.0/8] } }
rule_sets: { api: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1h } ] } ] } }
";
    let service = Service::start(&["grpc"], config);
    let mut client = Client::of(&service);
    let mut status = |source: &str, forwarded: &str| {
        let request = Described::get("/").source(source);
        let request = request.header("X-Forwarded-For", forwarded);
        request.send(&mut client).status()
    };
    // The peer of Envoy is the client.
    assert_eq!(status("192.0.2.1", "198.51.100.1"), 0);
    assert_eq!(status("192.0.2.1", "198.51.100.2"), 429);
    // It is a proxy that is trusted.
    assert_eq!(status("10.0.0.1", "198.51.100.1"), 0);
    assert_eq!(status("10.0.0.1", "198.51.100.9,198.51.100.1"), 429);
    assert_eq!(status("10.0.0.1", "198.51.100.1, 10.0.0.2"), 429);
    assert_eq!(status("10.0.0.1", "198.51.100.9, 192.0.2.1"), 429);
    // Unknown addresses count together.
    assert_eq!(status("", "198.51.100.7"), 0);
    assert_eq!(status("", "198.51.100.8"), 429);
}

#[test]
fn an_error_is_never_about_the_request_of_the_client() {
    let service = Service::start(&["grpc"], ONE_FILTER);
    let mut client = Client::of(&service);
    for (method, path) in [
        ("", "/api/x"),
        ("G T", "/api/x"),
        ("post", "/api/x"),
        ("GET", ""),
        ("GET", "*"),
        ("GET", "api/x"),
        ("CONNECT", "a.example:443"),
        ("GET", "/api/x#y"),
        ("GET", "/api/x y"),
        ("GET", "/api/../x"),
        ("GET", "/api/%2e%2e/x"),
    ] {
        let answer = Described::new(method, path).send(&mut client);
        assert_eq!(answer.status(), 400, "{method} {path}: {answer:?}");
        assert_eq!(answer.code(), 3);
    }
    let bad_name = Described::get("/api/x").header("a b", "c");
    assert_eq!(bad_name.send(&mut client).status(), 400);
}

#[test]
fn before_rules_are_loaded_calls_fail() {
    let dir = Dir::new();
    let gone = ports::free();
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ grpc: '127.0.0.1:0' }}\nstore: {{ redis: {{ url: 'redis://{}' }} }}\n\
             rules_from: {{ redis: {{}} }}\nfilters: {{ main: {{ rule_set: api }} }}\n",
            gone.addr()
        ),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let mut client = Client::of(&service);
    assert_eq!(
        Described::get("/").error(&mut client),
        (
            "UNAVAILABLE".to_owned(),
            "the rules are not loaded yet".to_owned()
        )
    );
}
