//! HTTP/2 requests that would change their meaning in HTTP/1.1.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use fluxgate_testkit::{WireRequest, wait_until};

use super::super::{config, gateway, script};
use super::{check, upstream};
use crate::http2_peers::Http2Upstream;
use crate::service::Service;

const MALFORMED: &[&str] = &[
    "connection_headers",
    "connection_headers_with_a_body",
    "lengths_without_a_body",
    "characters",
    "paths",
    "pseudo_headers",
    "body_beyond_its_length",
    "unusual_targets",
    "trailers",
    "hosts",
];

#[test]
fn malformed_requests_are_rejected_and_smuggle_nothing() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(&service, "downgrade", MALFORMED);
    check_harmless(upstream.requests());
}

#[test]
fn malformed_requests_do_not_reach_an_upstream_over_http2() {
    let upstream = Http2Upstream::start();
    let service = gateway_over_http2(&upstream);
    check(&service, "downgrade", MALFORMED);
    check_harmless(upstream.requests());
}

/// Starts a gateway to an upstream that speaks HTTP/2.
fn gateway_over_http2(upstream: &Http2Upstream) -> Service {
    let config = config(&[upstream.address()], "", "").replace("http:", "h2c:");
    Service::start(&["gateway"], &config)
}

/// Checks what an upstream got of malformed requests.
fn check_harmless(requests: Vec<WireRequest>) {
    for request in requests {
        assert!(
            ["/x", "/?q", "/host"].contains(&request.target.as_str()),
            "{request:?}"
        );
        assert!(
            [&b""[..], b"hello"].contains(&&request.body[..]),
            "{request:?}"
        );
        assert!(!request.target.contains("hidden"), "{request:?}");
        assert!(request.values("x-forged").is_empty(), "{request:?}");
        assert_ne!(request.values("host"), ["evil.example"], "{request:?}");
        let forbidden = [
            "content-length",
            "transfer-encoding",
            "host",
            "x-forwarded-for",
        ];
        let names = request.trailers.iter().map(|(name, _)| name.as_str());
        assert!(
            !names.clone().any(|name| forbidden.contains(&name)),
            "{request:?}"
        );
    }
}

#[test]
fn a_valid_request_becomes_one_valid_request() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(&service, "downgrade", &["valid_requests"]);
    let requests = upstream.requests();
    let requests_to = |target: &str| -> Vec<&WireRequest> {
        requests.iter().filter(|it| it.target == target).collect()
    };
    let body = |target: &str| requests_to(target).first().map(|it| it.body.clone());
    assert_eq!(requests.len(), 11);
    assert_eq!(requests_to("/post").len(), 2);
    assert!(requests_to("/post").iter().all(|it| it.body == b"hello"));
    assert_eq!(body("/delete").unwrap(), b"hello");
    assert!(body("/get-body").unwrap().starts_with(b"GET /hidden"));
    // RFC 9113, section 8.2.3.
    assert_eq!(requests_to("/cookies")[0].values("cookie"), ["a=b; c=d"]);
    assert!(requests.iter().all(|it| it.version == "HTTP/1.1"));
    assert!(requests.iter().all(|it| it.values("host").len() == 1));
}

#[test]
fn a_valid_request_stays_one_over_http2() {
    let upstream = Http2Upstream::start();
    let service = gateway_over_http2(&upstream);
    check(&service, "downgrade", &["valid_requests"]);
    let requests = upstream.requests();
    assert_eq!(requests.len(), 11);
    let mut cookies = requests.iter().filter(|it| it.target == "/cookies");
    assert_eq!(cookies.next().unwrap().values("cookie"), ["a=b; c=d"]);
    assert!(requests.iter().all(|it| it.values("host").len() == 1));
    let mut posts = requests.iter().filter(|it| it.target == "/post");
    assert!(posts.all(|it| it.body == b"hello"));
}

#[test]
fn a_body_over_the_limit_is_rejected() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "  limits: { body_bytes: 1000 }\n");
    check(&service, "downgrade", &["body_over_the_limit"]);
    assert!(upstream.requests().iter().all(|it| it.target != "/large"));
}

#[test]
fn a_truncated_response_resets_its_stream() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(&service, "downgrade", &["truncated_response"]);
}

#[test]
fn a_stream_that_is_reset_while_it_waits_gets_its_units_back() {
    let upstream = upstream();
    let config = config(&[upstream.address()], "main", "");
    let more = "filters: { main: { rule_set: api } }
rule_sets:
  api:
    rules:
      - { id: r, scope: global, on_exceed: wait, max_wait: 10d, bands: [ { capacity: 1, window: 1h } ] }
";
    let service = Service::start(&["gateway"], &format!("{config}{more}"));
    let hours_until_full = || {
        let state = service.http().get("/v1/state?rule_set=api&rule=r").body;
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        state["bands"][0]["reset_after_ms"]
            .as_u64()
            .unwrap()
            .div_ceil(3_600_000)
    };
    let mut child = script("http2/downgrade.py")
        .args([
            "reset_while_waiting",
            &service.address("gateway").to_string(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "sent");
    wait_until("it waits", || hours_until_full() == 2);
    writeln!(stdin).unwrap();
    assert_eq!(output.next().unwrap().unwrap(), "reset");
    wait_until("its units are refunded", || hours_until_full() == 1);
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(upstream.requests().len(), 1);
}
