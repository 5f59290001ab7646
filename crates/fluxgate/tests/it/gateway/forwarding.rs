//! What upstreams receive of requests, and clients of responses.

use std::io::Write as _;

use super::*;

#[test]
fn hop_by_hop_headers_are_removed_and_all_others_forwarded() {
    let upstream = Upstream::start(|_, stream| {
        let head = "HTTP/1.1 201 Created\r\nx-response: 1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
                    connection: keep-alive, x-private\r\nx-private: 1\r\nkeep-alive: timeout=5\r\n\
                    proxy-authenticate: Basic\r\ncontent-length: 2\r\n\r\nhi";
        stream.write_all(head.as_bytes()).is_ok()
    });
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    let headers = [
        ("X-Kept", "one"),
        ("X-Kept", "two"),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        ("Connection", "keep-alive, X-Dropped"),
        ("X-Dropped", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authorization", "secret"),
        ("Proxy", "http://evil.example"),
        ("TE", "gzip, trailers"),
        ("Upgrade", "h2c"),
        ("Expect", "100-continue"),
        ("X_Other", "kept"),
        ("Content_Type", "text/plain"),
        ("X_Forwarded_For", "6.6.6.6"),
    ];
    http.send_raw(&raw("POST", "/a%20b?q=1&r", &headers, "hello"))
        .unwrap();
    assert_eq!(http.read_answer(false).unwrap().status, 100);
    let response = http.read_answer(false).unwrap();
    assert_eq!((response.status, &*response.body), (201, "hi"));
    assert_eq!(response.header("x-response"), Some("1"));
    let cookies = response
        .headers
        .iter()
        .filter(|(name, _)| name == "set-cookie");
    assert_eq!(cookies.count(), 2);
    for name in [
        "connection",
        "x-private",
        "keep-alive",
        "proxy-authenticate",
    ] {
        assert_eq!(response.header(name), None, "{name}");
    }

    let request = upstream.only_request();
    assert_eq!(request.request_line(), "POST /a%20b?q=1&r HTTP/1.1");
    assert_eq!(request.body, b"hello");
    assert_eq!(request.header("host"), ["a.example"]);
    assert_eq!(request.header("x-kept"), ["one", "two"]);
    assert_eq!(request.header("traceparent"), [headers[2].1]);
    assert_eq!(request.header("content-length"), ["5"]);
    assert_eq!(request.header("te"), ["trailers"]);
    assert_eq!(request.header("connection"), ["te"]);
    assert_eq!(request.header("x_other"), ["kept"]);
    for name in [
        "content_type",
        "x-dropped",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy",
        "upgrade",
        "expect",
        "x_forwarded_for",
    ] {
        assert!(request.header(name).is_empty(), "{name}: {request:?}");
    }
}

#[test]
fn forwarding_headers_of_an_untrusted_client_are_replaced() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "");
    let port = service.address("gateway").port().to_string();
    let claims = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Port", "1"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Real-IP", "6.6.6.6"),
        ("X-Original-URL", "/evil"),
        ("X-Rewrite-URL", "/evil"),
        ("Forwarded", "for=6.6.6.6"),
    ];
    let mut http = client(&service);
    http.send_raw(&raw("GET", "/", &claims, "")).unwrap();
    assert_eq!(http.read_answer(false).unwrap().status, 200);
    let request = upstream.only_request();
    assert_eq!(request.header("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.header("x-forwarded-proto"), ["http"]);
    assert_eq!(request.header("x-forwarded-host"), ["a.example"]);
    assert_eq!(request.header("x-forwarded-port"), [&*port]);
    let forwarded = "for=127.0.0.1;host=\"a.example\";proto=http";
    assert_eq!(request.header("forwarded"), [forwarded]);
    for name in [
        "x-forwarded-prefix",
        "x-real-ip",
        "x-original-url",
        "x-rewrite-url",
    ] {
        assert!(request.header(name).is_empty(), "{name}: {request:?}");
    }
}

#[test]
fn forwarding_headers_of_a_trusted_proxy_are_extended() {
    let upstream = Upstream::with_body("");
    let filters = "filters: { near: { rule_set: s, trusted_proxies: [127.0.0.0/8] } }\n";
    let routes = [route("r", "filters: [near],", &[&upstream])];
    let rules = "rule_sets: { s: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 9, window: 1m } ] } ] } }\n";
    let service = start(&routes, &format!("{filters}{rules}"));
    let claims = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "b.example"),
        ("X-Forwarded-Prefix", "/p"),
        ("Forwarded", "for=6.6.6.6"),
    ];
    let mut http = client(&service);
    http.send_raw(&raw("GET", "/", &claims, "")).unwrap();
    assert_eq!(http.read_answer(false).unwrap().status, 200);
    let request = upstream.only_request();
    assert_eq!(request.header("x-forwarded-for"), ["6.6.6.6, 127.0.0.1"]);
    assert_eq!(request.header("x-forwarded-proto"), ["https"]);
    assert_eq!(request.header("x-forwarded-host"), ["b.example"]);
    assert_eq!(request.header("x-forwarded-prefix"), ["/p"]);
    let forwarded = "for=6.6.6.6, for=127.0.0.1;host=\"a.example\";proto=http";
    assert_eq!(request.header("forwarded"), [forwarded]);
}

#[test]
fn a_request_has_the_same_id_everywhere() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    let given = http.request("GET", "/", &[("X-Request-Id", "mine-1")], "");
    assert_eq!(given.header("x-request-id"), Some("mine-1"));
    let named = [("X-Request-Id", "mine-2"), ("Connection", "x-request-id")];
    let named = client(&service).request("GET", "/named", &named, "");
    assert_eq!(named.header("x-request-id"), Some("mine-2"));
    assert_eq!(upstream.requests()[1].header("x-request-id"), ["mine-2"]);
    let invalid = http.request("GET", "/", &[("X-Request-Id", "not valid")], "");
    let generated = invalid.header("x-request-id").unwrap().to_owned();
    assert_eq!(generated.len(), 16);
    let requests = upstream.requests();
    assert_eq!(requests[0].header("x-request-id"), ["mine-1"]);
    assert_eq!(requests[2].header("x-request-id"), [&*generated]);
}

#[test]
fn a_response_to_head_keeps_its_length_and_has_no_body() {
    let upstream = Upstream::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")
            .is_ok()
    });
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    for _ in 0..2 {
        let response = http.request("HEAD", "/", &[], "");
        assert_eq!(response.header("content-length"), Some("5000"));
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_http_1_0_request_needs_no_host() {
    let upstream = Upstream::with_body("old");
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    http.send_raw(b"GET /x HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(http.read_answer(false).unwrap().body, "old");
    let request = upstream.only_request();
    assert_eq!(request.request_line(), "GET /x HTTP/1.1");
    assert_eq!(
        format!("http://{}", request.header("host")[0]),
        upstream.url()
    );
    assert!(request.header("x-forwarded-host").is_empty());
}

#[test]
fn the_host_of_an_absolute_target_overrides_the_host_header() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    http.send_raw(b"GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .unwrap();
    assert_eq!(http.read_answer(false).unwrap().status, 200);
    let request = upstream.only_request();
    assert_eq!(request.request_line(), "GET /x HTTP/1.1");
    assert_eq!(request.header("host"), ["b.example"]);
}

/// Returns the bytes of a request to `a.example`.
fn raw(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    format!("{request}\r\n{body}").into_bytes()
}
