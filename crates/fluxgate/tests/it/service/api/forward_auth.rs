//! `GET /v1/forward_auth`, called by proxies for the requests of their clients.

use fluxgate_testkit::{Answer, Http, wait_until};
use serde_json::json;

use super::json_of;
use crate::service::Service;
use crate::support::Dir;

const ONE_FILTER: &str = r#"
filters:
  main: { rule_set: api, include: ["/api/**"], exclude: ["/api/health"] }
rule_sets:
  api:
    rules:
      - { id: r, scope: per_ip, match: { methods: [POST] }, bands: [ { id: b, capacity: 2, window: 1h } ] }
"#;

/// Sends a request from this address as a proxy describes it.
fn send(http: &mut Http, target: &str, method: &str, uri: &str, address: &str) -> Answer {
    let headers = [
        ("X-Forwarded-Method", method),
        ("X-Forwarded-Uri", uri),
        ("X-Forwarded-For", address),
    ];
    http.request("GET", target, &headers, "")
}

const TARGET: &str = "/v1/forward_auth";

#[test]
fn a_request_is_decided_as_the_proxy_describes_it() {
    let service = Service::start(&[], ONE_FILTER);
    let mut http = service.http();
    for remaining in ["1", "0"] {
        let passed = send(&mut http, TARGET, "POST", "/api/x?y", "192.0.2.1");
        assert_eq!((passed.status, &*passed.body), (200, ""));
        assert_eq!(passed.header("x-ratelimit-remaining"), Some(remaining));
        let policy = passed.header("ratelimit-policy");
        assert_eq!(policy, Some("\"r/b\";q=2;w=3600"));
        assert_eq!(passed.header("retry-after"), None);
    }
    let refused = send(&mut http, TARGET, "POST", "/api/y", "192.0.2.1");
    assert_eq!(refused.status, 429);
    let kind = refused.header("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&retry), "{retry}");
    let body = json_of(&refused);
    assert_eq!(body["violated-policies"], json!(["r/b"]));
    assert_eq!(body["status"], 429);
    // Another address, another method, and paths that the filter does not apply to.
    for (method, uri, address, is_limited) in [
        ("POST", "/api/x", "192.0.2.2", true),
        ("GET", "/api/x", "192.0.2.1", false),
        ("POST", "/api/health", "192.0.2.1", false),
        ("POST", "/other", "192.0.2.1", false),
    ] {
        let passed = send(&mut http, TARGET, method, uri, address);
        assert_eq!(passed.status, 200, "{method} {uri}");
        assert_eq!(
            passed.header("ratelimit").is_some(),
            is_limited,
            "{method} {uri}"
        );
    }
    let metrics = http.get("/metrics").body;
    let denied = r#"fluxgate_decisions_total{rule_set="api",rule="r",outcome="denied"} 1"#;
    assert!(metrics.contains(denied), "{metrics}");
}

#[test]
fn the_documented_request_is_answered() {
    let rule = r#"{ id: r, scope: per_user, match: { path: ["/api/x"], methods: [POST] }, bands: [ { capacity: 1, window: 1h } ] }"#;
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\nrule_sets: {{ s: {{ rules: [ {rule} ] }} }}\n"
    );
    let service = Service::start(&[], &config);
    let request = crate::docs::only("text forward-auth");
    let (first, headers) = request.split_once('\n').unwrap();
    let (method, target) = first.split_once(' ').unwrap();
    let headers: Vec<_> = headers
        .lines()
        .map(|line| line.split_once(": ").unwrap())
        .collect();
    for status in [200, 429] {
        let answer = service.http().request(method, target, &headers, "");
        assert_eq!(answer.status, status, "{answer:?}");
    }
}

#[test]
fn the_address_is_the_rightmost_past_trusted_proxies() {
    let rules = "rule_sets: { api: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1h } ] } ] } }\n";
    let trusting = "filters: { main: { rule_set: api, trusted_proxies: [10.0.0.0/8] } }\n";
    let service = Service::start(&[], &format!("{trusting}{rules}"));
    let mut http = service.http();
    let mut status = |address: &str| send(&mut http, TARGET, "GET", "/", address).status;
    assert_eq!(status("192.0.2.1"), 200);
    assert_eq!(status("198.51.100.1, 192.0.2.1"), 429);
    assert_eq!(status("198.51.100.1, 192.0.2.1, 10.0.0.1"), 429);
    assert_eq!(status("198.51.100.1"), 200);
    // Unknown addresses count together.
    assert_eq!(status("unknown"), 200);
    assert_eq!(status("192.0.2.9, unknown"), 429);
    assert_eq!(status(""), 429);
}

#[test]
fn filters_are_applied_as_configured() {
    let config = r#"
filters:
  first: { rule_set: api, identity: { user: "header:X-Me" }, headers: { legacy: false, ietf: false } }
  second: { rule_set: hosts }
rule_sets:
  api: { rules: [ { id: r, scope: per_user, bands: [ { capacity: 1, window: 1h } ] } ] }
  hosts: { rules: [ { id: r, key: ["header:Host"], bands: [ { capacity: 1, window: 1h } ] } ] }
"#;
    let service = Service::start(&[], config);
    let mut http = service.http();
    let mut send = |target: &str, name: &str, value: &str| {
        let headers = [
            ("X-Forwarded-Method", "GET"),
            ("X-Forwarded-Uri", "/"),
            (name, value),
        ];
        http.request("GET", target, &headers, "")
    };
    let first = "/v1/forward_auth?filter=first";
    assert_eq!(send(first, "X-Me", "ann").status, 200);
    assert_eq!(send(first, "X-Me", "bob").status, 200);
    let refused = send(first, "X-Me", "ann");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("x-ratelimit-limit"), None);
    assert_eq!(refused.header("ratelimit"), None);
    let second = "/v1/forward_auth?filter=second&denied=403";
    assert_eq!(send(second, "X-Forwarded-Host", "a.example").status, 200);
    assert_eq!(send(second, "X-Forwarded-Host", "b.example").status, 200);
    let refused = send(second, "X-Forwarded-Host", "a.example");
    assert_eq!((refused.status, &*refused.body), (403, ""));
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn invalid_requests_are_explained() {
    let two = "filters: { a: { rule_set: api }, b: { rule_set: api } }\n";
    let rules = "rule_sets: { api: { rules: [ { id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] } ] } }\n";
    let service = Service::start(&[], &format!("{two}{rules}"));
    let mut http = service.http();
    for (target, uri, status, detail) in [
        ("", "/", 400, "`filter` is missing"),
        ("?filter=c", "/", 404, "there is no filter `c`"),
        (
            "?filter=a&denied=401",
            "/",
            400,
            "`denied` must be 403 or 429",
        ),
        (
            "?rule_set=api",
            "/",
            400,
            "the query may contain only `filter` and `denied`",
        ),
        (
            "?filter=a",
            "/x/../y",
            400,
            "the request is ambiguous: the path has `.` or `..` in it",
        ),
    ] {
        let answer = send(
            &mut http,
            &format!("{TARGET}{target}"),
            "GET",
            uri,
            "192.0.2.1",
        );
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(json_of(&answer)["detail"], detail);
    }
    let answer = http.get("/v1/forward_auth?filter=a");
    assert_eq!(answer.status, 400);
    let detail = "`x-forwarded-method` must be given exactly once";
    assert_eq!(json_of(&answer)["detail"], detail);
    assert_eq!(http.post("/v1/forward_auth?filter=a", "").status, 405);
    // None of these was charged.
    let answer = send(&mut http, "/v1/forward_auth?filter=b", "GET", "/", "");
    assert_eq!(answer.status, 200);

    let none = Service::start(&[], rules);
    let answer = send(&mut none.http(), TARGET, "GET", "/", "");
    assert_eq!(answer.status, 404);
    assert_eq!(json_of(&answer)["detail"], "the config has no `filters`");
}

/// As the external authorization of Gateway API calls it.
#[test]
fn in_the_path_form_the_call_is_the_request() {
    let config = r#"
filters:
  main: { rule_set: api, exclude: ["/free"] }
rule_sets:
  api:
    rules:
      - { id: host, key: ["header:Host"], match: { path: ["/host"] }, bands: [ { capacity: 1, window: 1h } ] }
      - { id: query, key: ["attr:key"], on_missing_key: skip, bands: [ { capacity: 1, window: 1h } ] }
      - { id: post, scope: global, match: { methods: [POST] }, bands: [ { capacity: 2, window: 1h } ] }
"#;
    let config = config.replace(
        "exclude:",
        "attributes: { key: \"query:filter\" }, exclude:",
    );
    let service = Service::start(&[], &config);
    let mut http = service.http();
    let mut send = |method: &str, target: &str, headers: &[(&str, &str)]| {
        let answer = http.request(method, &format!("{TARGET}{target}"), headers, "");
        (answer.status, answer.header("ratelimit").is_some())
    };
    // Pages of other sites are clients of the proxy, too.
    let foreign = [("Origin", "https://other.example")];
    assert_eq!(send("POST", "/x", &foreign), (200, true));
    assert_eq!(send("POST", "/", &[]), (200, true));
    assert_eq!(send("POST", "/", &[]), (429, true));
    assert_eq!(send("PURGE", "/x", &[]), (200, false));
    assert_eq!(send("POST", "/free", &[]), (200, false));
    // All of the query is the client's.
    for (target, status) in [
        ("/x?filter=other", 200),
        ("/x?filter=other", 429),
        ("/x?denied=403&filter=other", 429),
    ] {
        assert_eq!(send("GET", target, &[]).0, status, "{target}");
    }
    assert_eq!(send("GET", ";filter=main/x?filter=more", &[]).0, 200);
    assert_eq!(send("GET", ";filter=main/x?filter=more", &[]).0, 429);
    assert_eq!(send("GET", ";filter=other/x", &[]).0, 404);
    // Headers that name a method and a target take precedence.
    let described = [
        ("X-Forwarded-Method", "POST"),
        ("X-Forwarded-Uri", "/x?filter=second"),
    ];
    assert_eq!(send("GET", "/free", &described).0, 429);
    // The host is the client's, unless a header names it.
    let host = [("X-Forwarded-Host", "b.example")];
    assert_eq!(send("GET", "/host", &[]).0, 200);
    assert_eq!(send("GET", "/host", &host).0, 200);
    assert_eq!(send("GET", "/host", &[]).0, 429);
    for target in ["/x/../y", "/%2e%2e", ";filter=main", ";filter=main?x"] {
        assert_eq!(send("GET", target, &[]).0, 400, "{target}");
    }
    assert_eq!(send("GET", "x", &[]).0, 404);
}

/// Proxies may send the length of a body that they do not send.
#[test]
fn a_connection_with_an_unread_body_is_closed() {
    let service = Service::start(&[], ONE_FILTER);
    let send = |more: &str| {
        let mut http = service.http();
        let head = "GET /v1/forward_auth HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: POST\r\n\
                    X-Forwarded-Uri: /api/x\r\n";
        http.send_raw(format!("{head}{more}\r\n").as_bytes())
            .unwrap();
        http.read_answer(false).unwrap()
    };
    let kept = send("");
    assert_eq!((kept.status, kept.header("connection")), (200, None));
    let kept = send("Content-Length: 0\r\n");
    assert_eq!((kept.status, kept.header("connection")), (200, None));
    let closed = send("Content-Length: 4\r\n");
    assert_eq!(
        (closed.status, closed.header("connection")),
        (429, Some("close"))
    );
}

#[test]
fn before_rules_are_loaded_requests_are_refused() {
    let dir = Dir::new();
    let gone = fluxgate_testkit::ports::free();
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ api: '127.0.0.1:0' }}\nstore: {{ redis: {{ url: 'redis://{}' }} }}\n\
             rules_from: {{ redis: {{}} }}\nfilters: {{ main: {{ rule_set: api }} }}\n",
            gone.addr()
        ),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let answer = send(&mut service.http(), TARGET, "GET", "/", "192.0.2.1");
    assert_eq!(answer.status, 503);
    assert_eq!(json_of(&answer)["detail"], "the rules are not loaded yet");
}

/// The wait permits of a filter are shared by all listeners and released again.
#[test]
fn a_request_that_has_to_wait_is_held() {
    let config = r#"
filters: { main: { rule_set: api, max_concurrent_waits: 1 } }
gateway: { routes: [ { id: all, upstreams: [echo], filters: [main] } ] }
rule_sets:
  api:
    rules:
      - { id: slow, match: { path: ["/slow"] }, scope: global, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 1h } ] }
      - { id: quick, match: { path: ["/quick"] }, scope: global, on_exceed: wait, bands: [ { capacity: 1, window: 500ms } ] }
"#;
    let service = Service::start(&["gateway"], config);
    let mut http = service.http();
    let waiting = |count: u8| {
        let metrics = service.http().get("/metrics").body;
        metrics.contains(&format!("\nfluxgate_waiting {count}\n"))
    };
    // The second request waits for the rest of the half second.
    for _ in 0..2 {
        assert_eq!(send(&mut http, TARGET, "GET", "/quick", "").status, 200);
    }
    assert_eq!(send(&mut http, TARGET, "GET", "/slow", "").status, 200);
    let mut patient = service.http();
    let request = "GET /v1/forward_auth HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: GET\r\n\
                 X-Forwarded-Uri: /slow\r\n\r\n";
    patient.send_raw(request.as_bytes()).unwrap();
    wait_until("a request waits", || waiting(1));
    assert_eq!(send(&mut http, TARGET, "GET", "/slow", "").status, 429);
    let mut gateway = Http::new(service.address("gateway"));
    assert_eq!(gateway.get("/slow").status, 429);
    drop(patient);
    wait_until("no request waits", || waiting(0));
    // The same if a proxy disconnects before the announced body or in the middle of it.
    for body in ["", "ab"] {
        let mut patient = service.http();
        let request = request.replace("Host: a\r\n", "Host: a\r\nContent-Length: 5\r\n");
        patient.send_raw(request.as_bytes()).unwrap();
        patient.send_raw(body.as_bytes()).unwrap();
        wait_until("a request waits", || waiting(1));
        drop(patient);
        wait_until("no request waits", || waiting(0));
    }
}

/// Spellings of `/api/x`.
const SPELLED: [&str; 10] = [
    "/%61pi/x",
    "//api/x",
    "/api;v=1/x",
    "/api%3bv=1/x",
    "/api%2fx",
    "/api\\x",
    "/api%5Cx",
    "/%2fapi/x",
    "/api//x",
    "http://h/%61pi/x",
];

#[test]
fn a_limit_on_a_path_holds_for_every_spelling() {
    let config = r#"
filters:
  main: { rule_set: s, include: ["/api/**", "/*"], exclude: ["/api/health"] }
rule_sets:
  s:
    rules:
      - { id: r, key: [ip, path], match: { not_path: ["/api/free"] }, bands: [ { capacity: 1, window: 1h } ] }
"#;
    let service = Service::start(&[], config);
    let mut http = service.http();
    for (index, spelled) in SPELLED.into_iter().enumerate() {
        let address = format!("192.0.2.{index}");
        let mut send = |uri: &str| send(&mut http, TARGET, "GET", uri, &address).status;
        assert_eq!(
            [send(spelled), send("/api/x"), send(spelled)],
            [200, 429, 429],
            "{spelled}"
        );
    }
    let mut send = |method: &str, uri: &str| send(&mut http, TARGET, method, uri, "192.0.2.99");
    for refused in [
        "/api/../x",
        "/api/%2e%2e/x",
        "/api/..;/x",
        "/api/.%2e",
        "/api%5c..%5cx",
        "/a%00",
        "/api/x%0a",
        "/api/x%80",
        "/api;%2fy/x",
    ] {
        let answer = send("GET", refused);
        assert_eq!(answer.status, 400, "{refused}");
        let detail = json_of(&answer)["detail"].to_string();
        assert!(detail.contains("ambiguous"), "{detail}");
    }
    // Excluded only in both forms.
    for (uri, is_limited) in [
        ("/api/health", false),
        ("/api/health;x", true),
        ("/api/free", false),
        ("/api/fre%65", true),
    ] {
        let answer = send("GET", uri);
        assert_eq!(answer.header("ratelimit").is_some(), is_limited, "{uri}");
    }
    // `*` matches `/*`.
    assert_eq!(send("OPTIONS", "*").status, 200);
    assert_eq!(send("OPTIONS", "*").status, 429);
    assert_eq!(send("GET", "*").status, 400);
}

/// The service cannot remove headers from the request that the proxy forwards.
#[test]
fn requests_with_headers_alike_to_counted_ones_are_refused() {
    let config = r#"
filters: { main: { rule_set: s, exclude: ["/free"] } }
rule_sets:
  s:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 2, window: 1h } ] }
      - { id: t, key: ["header:X-Tenant"], on_missing_key: skip, bands: [ { capacity: 9, window: 1h } ] }
"#;
    let service = Service::start(&[], config);
    let mut http = service.http();
    let mut send = |uri: &str, more: &[(&str, &str)]| {
        let headers = [
            ("X-Forwarded-Method", "GET"),
            ("X-Forwarded-Uri", uri),
            ("X-Forwarded-For", "192.0.2.1"),
        ];
        let headers = [&headers[..], more].concat();
        http.request("GET", TARGET, &headers, "").status
    };
    let user = ("X-User-Id", "a");
    for (more, expected) in [
        (&[user][..], 200),
        (&[user, ("X_Other", "b")], 200),
        (&[user, ("X_User_Id", "b")], 400),
        (&[("X_User_Id", "b")], 400),
        (&[user, ("X_Tenant", "b")], 400),
        (&[user, ("X.Tenant", "b")], 400),
        (&[user, ("X.Forwarded.Uri", "/y")], 400),
        (&[user, ("X_Forwarded_For", "192.0.2.2")], 400),
        (&[user, ("X-User-Id", "b")], 400),
        (&[("X-Tenant", "a"), ("X-Tenant", "b")], 400),
        (&[user, user], 429),
    ] {
        assert_eq!(send("/x", more), expected, "{more:?}");
    }
    assert_eq!(send("/free", &[user, ("X_User_Id", "b")]), 200);
}
