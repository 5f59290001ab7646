//! Requests that a browser sends for a page of another site.

use fluxgate_testkit::{Answer, Http, RedisServer};
use serde_json::Value;

use super::Service;
use super::stored_rules;

const THREE_AN_HOUR: &str = "
filters: { main: { rule_set: api } }
rule_sets: { api: { rules: [ { id: r, scope: global, bands: [ { capacity: 3, window: 1h } ] } ] } }
";

/// Returns the headers of browsers for pages of other sites.
fn foreign(own: &str) -> Vec<Vec<(&'static str, String)>> {
    let origin = |origin: &str| vec![("Origin", origin.to_owned())];
    vec![
        origin("https://evil.example"),
        origin("null"),
        origin("http://localhost:3000"),
        origin("http://127.0.0.1"),
        origin(&format!("http://{own}.evil.example")),
        origin(""),
        vec![("Sec-Fetch-Site", "cross-site".into())],
        vec![("Sec-Fetch-Site", "same-site".into())],
        vec![
            ("Origin", format!("http://{own}")),
            ("Sec-Fetch-Site", "cross-site".into()),
        ],
    ]
}

fn post(http: &mut Http, path: &str, headers: &[(&str, String)], body: &str) -> Answer {
    let all = headers.iter();
    let all: Vec<_> = all.map(|(name, value)| (*name, &**value)).collect();
    http.request("POST", path, &all, body)
}

/// Returns the remaining units of the only limit.
fn remaining(http: &mut Http) -> u64 {
    let peek = r#"{"rule_set":"api","peek":true,"cost":0}"#;
    let answer = http.post("/v1/check", peek);
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    answer["remaining"].as_u64().unwrap()
}

#[track_caller]
fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, 403, "{answer:?}");
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    assert!(answer.body.contains("cross-origin"), "{answer:?}");
}

#[test]
fn a_page_of_another_site_cannot_charge() {
    let service = Service::start(&[], THREE_AN_HOUR);
    let mut http = service.http();
    let own = service.address("api").to_string();
    let consume = r#"{"rule_id":"api/r"}"#;
    let cancel = r#"{"reservation":"AERUKZ4JVPG66AJDIVTYTK6N54"}"#;
    for headers in foreign(&own) {
        for (path, body) in [
            ("/v1/check", "{}"),
            ("/v1/check?status=true", "{}"),
            ("/v1/check/batch", r#"{"checks":[{}]}"#),
            ("/v1/consume", consume),
            (
                "/v1/consume",
                r#"{"rule_id":"a","capacity":1,"refill_tokens_per_second":1}"#,
            ),
            ("/v1/refund", r#"{"rule_set":"api","rule":"r","units":1}"#),
            ("/v1/cancel", cancel),
            ("/v1/reset", r#"{"rule_set":"api","rule":"r"}"#),
        ] {
            assert_refused(&post(&mut http, path, &headers, body));
        }
    }
    assert_eq!(remaining(&mut http), 3);
}

/// Even with JSON and a token.
#[test]
fn a_page_of_another_site_cannot_write_rules() {
    let server = RedisServer::start();
    let dir = crate::support::Dir::new();
    let sha256 = "8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918";
    dir.write("tokens", format!("anna:admin:{sha256}\n"));
    let config = stored_rules::config(&server.url(), "1h") + "admin: { tokens_file: tokens }\n";
    let service = Service::start_in(dir, &[], &config);
    let mut http = service.http();
    let set = stored_rules::set(1);
    let mut call = |method: &str, path: &str, body: &str, origin: &str| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Authorization", "Bearer admin"),
            ("Origin", origin),
        ];
        http.request(method, path, &headers, body)
    };
    let path = "/v1/rule_sets/api";
    let own = format!("http://{}", service.address("api"));
    assert_refused(&call("PUT", path, &set, "https://evil.example"));
    assert_eq!(call("PUT", path, &set, &own).status, 201);
    assert_refused(&call(
        "POST",
        &format!("{path}/rules/r/disable"),
        "",
        "null",
    ));
    assert_refused(&call("DELETE", path, "", "https://evil.example"));
    assert_eq!(call("DELETE", path, "", &own).status, 204);
}

#[test]
fn programs_and_same_origin_pages_are_served() {
    let service = Service::start(&[], THREE_AN_HOUR);
    let mut http = service.http();
    let own = service.address("api").to_string();
    // As `curl -d` sends it without a content type.
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_eq!(http.request("POST", "/v1/check", &form, "{}").status, 200);
    assert_eq!(http.request("POST", "/v1/check", &[], "{}").status, 200);
    let page = [
        ("Origin", format!("http://{own}")),
        ("Sec-Fetch-Site", "same-origin".into()),
    ];
    assert_eq!(post(&mut http, "/v1/check", &page, "{}").status, 200);
    assert_eq!(remaining(&mut http), 0);
    // Responses to reads are hidden by CORS.
    let headers = [("Origin", "https://evil.example")];
    assert_eq!(http.request("GET", "/livez", &headers, "").status, 200);
}

/// With DNS rebinding, the page has the same origin.
#[test]
fn browsers_must_use_localhost_or_an_address_on_loopback() {
    let service = Service::start(&[], THREE_AN_HOUR);
    let port = service.address("api").port();
    let call = |host: &str, origin: Option<String>| {
        let mut http = service.http();
        let origin = origin.map(|origin| format!("Origin: {origin}\r\n"));
        let origin = origin.unwrap_or_default();
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nHost: {host}:{port}\r\n{origin}Content-Length: 2\r\n\r\n{{}}"
        );
        http.send_raw(head.as_bytes()).unwrap();
        http.read_answer(false).unwrap()
    };
    let evil = format!("http://evil.example:{port}");
    assert_refused(&call("evil.example", Some(evil)));
    let local = format!("http://localhost:{port}");
    assert_eq!(call("localhost", Some(local)).status, 200);
    // Programs may use any name.
    assert_eq!(call("fluxgate.internal", None).status, 200);
    assert_eq!(remaining(&mut service.http()), 1);
}

/// Proxies forward the headers of their client's browser. A page itself cannot send the
/// headers that the call needs: they need a preflight, which is refused.
#[test]
fn forward_auth_serves_clients_of_any_origin() {
    let service = Service::start(&[], THREE_AN_HOUR);
    let mut http = service.http();
    let page = [
        ("Origin", "https://shop.example"),
        ("Sec-Fetch-Site", "cross-site"),
    ];
    let forwarded = [("X-Forwarded-Method", "POST"), ("X-Forwarded-Uri", "/x")];
    let both = [page, forwarded].concat();
    let answer = http.request("GET", "/v1/forward_auth", &both, "");
    assert_eq!(answer.status, 200);
    let answer = http.request("GET", "/v1/forward_auth", &page, "");
    assert_eq!(answer.status, 400);
    let preflight = [
        ("Origin", "https://evil.example"),
        ("Access-Control-Request-Method", "GET"),
        (
            "Access-Control-Request-Headers",
            "x-forwarded-method,x-forwarded-uri",
        ),
    ];
    let answer = http.request("OPTIONS", "/v1/forward_auth", &preflight, "");
    assert_eq!(answer.status, 405);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    assert_eq!(remaining(&mut http), 2);
}
