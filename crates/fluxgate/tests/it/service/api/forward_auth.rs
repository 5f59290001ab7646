//! Proxies that ask about the requests that they have.

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

/// Asks about a request of this address, as a proxy does.
fn ask(http: &mut Http, target: &str, method: &str, uri: &str, address: &str) -> Answer {
    let headers = [
        ("X-Forwarded-Method", method),
        ("X-Forwarded-Uri", uri),
        ("X-Forwarded-For", address),
    ];
    http.request("GET", target, &headers, "")
}

const TARGET: &str = "/v1/forward_auth";

#[test]
fn a_request_is_decided_by_what_its_proxy_says() {
    let service = Service::start(&[], ONE_FILTER);
    let mut http = service.http();
    for remaining in ["1", "0"] {
        let passed = ask(&mut http, TARGET, "POST", "/api/x?y", "192.0.2.1");
        assert_eq!((passed.status, &*passed.body), (200, ""));
        assert_eq!(passed.header("x-ratelimit-remaining"), Some(remaining));
        let policy = passed.header("ratelimit-policy");
        assert_eq!(policy, Some("\"r/b\";q=2;w=3600"));
        assert_eq!(passed.header("retry-after"), None);
    }
    let refused = ask(&mut http, TARGET, "POST", "/api/y", "192.0.2.1");
    assert_eq!(refused.status, 429);
    let kind = refused.header("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&retry), "{retry}");
    let body = json_of(&refused);
    assert_eq!(body["violated-policies"], json!(["r/b"]));
    assert_eq!(body["status"], 429);
    // Another address, another method, and paths that are not the filter's business.
    for (method, uri, address, told) in [
        ("POST", "/api/x", "192.0.2.2", true),
        ("GET", "/api/x", "192.0.2.1", false),
        ("POST", "/api/health", "192.0.2.1", false),
        ("POST", "/other", "192.0.2.1", false),
    ] {
        let passed = ask(&mut http, TARGET, method, uri, address);
        assert_eq!(passed.status, 200, "{method} {uri}");
        assert_eq!(passed.header("ratelimit").is_some(), told, "{method} {uri}");
    }
    let metrics = http.get("/metrics").body;
    let denied = r#"fluxgate_decisions_total{rule_set="api",rule="r",outcome="denied"} 1"#;
    assert!(metrics.contains(denied), "{metrics}");
}

#[test]
fn the_question_of_the_document_is_answered() {
    let rule = r#"{ id: r, scope: per_user, match: { path: ["/api/x"], methods: [POST] }, bands: [ { capacity: 1, window: 1h } ] }"#;
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\nrule_sets: {{ s: {{ rules: [ {rule} ] }} }}\n"
    );
    let service = Service::start(&[], &config);
    let question = crate::docs::only("text forward-auth");
    let (first, headers) = question.split_once('\n').unwrap();
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

/// Only the proxy's own word counts, and that of those it stands behind.
#[test]
fn the_address_is_the_rightmost_past_trusted_proxies() {
    let rules = "rule_sets: { api: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1h } ] } ] } }\n";
    let trusting = "filters: { main: { rule_set: api, trusted_proxies: [10.0.0.0/8] } }\n";
    let service = Service::start(&[], &format!("{trusting}{rules}"));
    let mut http = service.http();
    let mut status = |address: &str| ask(&mut http, TARGET, "GET", "/", address).status;
    assert_eq!(status("192.0.2.1"), 200);
    assert_eq!(status("198.51.100.1, 192.0.2.1"), 429);
    assert_eq!(status("198.51.100.1, 192.0.2.1, 10.0.0.1"), 429);
    assert_eq!(status("198.51.100.1"), 200);
    // Who is not known counts as one.
    assert_eq!(status("unknown"), 200);
    assert_eq!(status("192.0.2.9, unknown"), 429);
    assert_eq!(status(""), 429);
}

#[test]
fn a_filter_is_asked_as_it_is_set() {
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
    let mut ask = |target: &str, name: &str, value: &str| {
        let headers = [
            ("X-Forwarded-Method", "GET"),
            ("X-Forwarded-Uri", "/"),
            (name, value),
        ];
        http.request("GET", target, &headers, "")
    };
    let first = "/v1/forward_auth?filter=first";
    assert_eq!(ask(first, "X-Me", "ann").status, 200);
    assert_eq!(ask(first, "X-Me", "bob").status, 200);
    let refused = ask(first, "X-Me", "ann");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("x-ratelimit-limit"), None);
    assert_eq!(refused.header("ratelimit"), None);
    let second = "/v1/forward_auth?filter=second&denied=403";
    assert_eq!(ask(second, "X-Forwarded-Host", "a.example").status, 200);
    assert_eq!(ask(second, "X-Forwarded-Host", "b.example").status, 200);
    let refused = ask(second, "X-Forwarded-Host", "a.example");
    assert_eq!((refused.status, &*refused.body), (403, ""));
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn what_cannot_be_asked_is_told() {
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
            "the query may hold `filter` and `denied` only",
        ),
        (
            "?filter=a",
            "/x/../y",
            400,
            "the request is ambiguous: the path has `.` or `..` in it",
        ),
    ] {
        let answer = ask(
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
    let detail = "`x-forwarded-method` must be there, once";
    assert_eq!(json_of(&answer)["detail"], detail);
    assert_eq!(http.post("/v1/forward_auth?filter=a", "").status, 405);
    // Nothing of all this was charged.
    let answer = ask(&mut http, "/v1/forward_auth?filter=b", "GET", "/", "");
    assert_eq!(answer.status, 200);

    let none = Service::start(&[], rules);
    let answer = ask(&mut none.http(), TARGET, "GET", "/", "");
    assert_eq!(answer.status, 404);
    assert_eq!(json_of(&answer)["detail"], "the config has no `filters`");
}

/// A proxy may repeat the length of a body that it does not send.
#[test]
fn a_connection_with_a_body_left_unread_is_not_kept() {
    let service = Service::start(&[], ONE_FILTER);
    let asked = |more: &str| {
        let mut http = service.http();
        let head = "GET /v1/forward_auth HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: POST\r\n\
                    X-Forwarded-Uri: /api/x\r\n";
        http.send_raw(format!("{head}{more}\r\n").as_bytes())
            .unwrap();
        http.read_answer(false).unwrap()
    };
    let kept = asked("");
    assert_eq!((kept.status, kept.header("connection")), (200, None));
    let kept = asked("Content-Length: 0\r\n");
    assert_eq!((kept.status, kept.header("connection")), (200, None));
    let closed = asked("Content-Length: 4\r\n");
    assert_eq!(
        (closed.status, closed.header("connection")),
        (429, Some("close"))
    );
}

#[test]
fn without_rules_nothing_is_decided() {
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
    let answer = ask(&mut service.http(), TARGET, "GET", "/", "192.0.2.1");
    assert_eq!(answer.status, 503);
    assert_eq!(json_of(&answer)["detail"], "the rules are not loaded yet");
}

/// Waiters take the places of their filter, whoever asks it, and give them back.
#[test]
fn a_request_that_has_to_wait_waits_here() {
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
    // The second waits for the rest of its half second.
    for _ in 0..2 {
        assert_eq!(ask(&mut http, TARGET, "GET", "/quick", "").status, 200);
    }
    assert_eq!(ask(&mut http, TARGET, "GET", "/slow", "").status, 200);
    let mut patient = service.http();
    let asked = "GET /v1/forward_auth HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: GET\r\n\
                 X-Forwarded-Uri: /slow\r\n\r\n";
    patient.send_raw(asked.as_bytes()).unwrap();
    wait_until("somebody waits", || waiting(1));
    assert_eq!(ask(&mut http, TARGET, "GET", "/slow", "").status, 429);
    let mut gateway = Http::new(service.address("gateway"));
    assert_eq!(gateway.get("/slow").status, 429);
    drop(patient);
    wait_until("nobody waits", || waiting(0));
    // A proxy that announces a body and sends none hangs up as well, and so does one
    // in the middle of it.
    for body in ["", "ab"] {
        let mut patient = service.http();
        let asked = asked.replace("Host: a\r\n", "Host: a\r\nContent-Length: 5\r\n");
        patient.send_raw(asked.as_bytes()).unwrap();
        patient.send_raw(body.as_bytes()).unwrap();
        wait_until("somebody waits", || waiting(1));
        drop(patient);
        wait_until("nobody waits", || waiting(0));
    }
}

/// Ways to write `/api/x`.
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
fn a_limit_on_a_path_holds_however_it_is_spelled() {
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
        let mut ask = |uri: &str| ask(&mut http, TARGET, "GET", uri, &address).status;
        assert_eq!(
            [ask(spelled), ask("/api/x"), ask(spelled)],
            [200, 429, 429],
            "{spelled}"
        );
    }
    let mut ask = |method: &str, uri: &str| ask(&mut http, TARGET, method, uri, "192.0.2.99");
    for refused in [
        "/api/../x",
        "/api/%2e%2e/x",
        "/api/..;/x",
        "/api/.%2e",
        "/api%5c..%5cx",
        "/a%00",
        "/api;%2fy/x",
    ] {
        let answer = ask("GET", refused);
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
        let answer = ask("GET", uri);
        assert_eq!(answer.header("ratelimit").is_some(), is_limited, "{uri}");
    }
    // The whole server counts as `/*`.
    assert_eq!(ask("OPTIONS", "*").status, 200);
    assert_eq!(ask("OPTIONS", "*").status, 429);
    assert_eq!(ask("GET", "*").status, 400);
}

/// What the proxy forwards is not in our hands: such requests are refused.
#[test]
fn headers_that_could_be_taken_for_others_are_refused() {
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
    let mut ask = |uri: &str, more: &[(&str, &str)]| {
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
        (&[user, ("X_Forwarded_For", "192.0.2.2")], 400),
        (&[user, ("X-User-Id", "b")], 400),
        (&[("X-Tenant", "a"), ("X-Tenant", "b")], 400),
        (&[user, user], 429),
    ] {
        assert_eq!(ask("/x", more), expected, "{more:?}");
    }
    assert_eq!(ask("/free", &[user, ("X_User_Id", "b")]), 200);
}
