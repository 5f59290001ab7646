//! What upstreams and clients get of each other's messages.

use std::io::Write as _;

use super::*;

#[test]
fn a_request_is_passed_on_as_it_came_but_for_what_is_about_the_connection() {
    let upstream = Upstream::start(|_, stream| {
        let head = "HTTP/1.1 201 Created\r\nx-answer: 1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
                    connection: keep-alive, x-private\r\nx-private: 1\r\nkeep-alive: timeout=5\r\n\
                    proxy-authenticate: Basic\r\ncontent-length: 2\r\n\r\nhi";
        stream.write_all(head.as_bytes()).is_ok()
    });
    let service = before(&[&upstream], "");
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
        ("Content_Type", "kept"),
        ("X_Forwarded_For", "6.6.6.6"),
    ];
    http.send_raw(&raw("POST", "/a%20b?q=1&r", &headers, "hello"))
        .unwrap();
    let first = http.read_answer(false).unwrap();
    assert_eq!(first.status, 100);
    let answer = http.read_answer(false).unwrap();
    assert_eq!((answer.status, &*answer.body), (201, "hi"));
    assert_eq!(answer.header("x-answer"), Some("1"));
    let cookies = answer
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
        assert_eq!(answer.header(name), None, "{name}");
    }

    let seen = upstream.only();
    assert_eq!(seen.line(), "POST /a%20b?q=1&r HTTP/1.1");
    assert_eq!(seen.body, b"hello");
    assert_eq!(seen.header("host"), ["a.example"]);
    assert_eq!(seen.header("x-kept"), ["one", "two"]);
    assert_eq!(seen.header("traceparent"), [headers[2].1]);
    assert_eq!(seen.header("content-length"), ["5"]);
    assert_eq!(seen.header("te"), ["trailers"]);
    assert_eq!(seen.header("connection"), ["te"]);
    assert_eq!(seen.header("content_type"), ["kept"]);
    for name in [
        "x-dropped",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy",
        "upgrade",
        "expect",
        "x_forwarded_for",
    ] {
        assert!(seen.header(name).is_empty(), "{name}: {seen:?}");
    }
}

#[test]
fn what_a_stranger_says_of_where_he_comes_from_is_replaced() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "");
    let port = service.address("gateway").port().to_string();
    let claims = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Port", "1"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Real-IP", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
    ];
    let mut http = client(&service);
    http.send_raw(&raw("GET", "/", &claims, "")).unwrap();
    assert_eq!(http.read_answer(false).unwrap().status, 200);
    let seen = upstream.only();
    assert_eq!(seen.header("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.header("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.header("x-forwarded-host"), ["a.example"]);
    assert_eq!(seen.header("x-forwarded-port"), [&*port]);
    let forwarded = "for=127.0.0.1;host=\"a.example\";proto=http";
    assert_eq!(seen.header("forwarded"), [forwarded]);
    assert!(seen.header("x-forwarded-prefix").is_empty());
    assert!(seen.header("x-real-ip").is_empty());
}

#[test]
fn what_a_trusted_proxy_says_is_kept_and_added_to() {
    let upstream = Upstream::saying("");
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
    let seen = upstream.only();
    assert_eq!(seen.header("x-forwarded-for"), ["6.6.6.6, 127.0.0.1"]);
    assert_eq!(seen.header("x-forwarded-proto"), ["https"]);
    assert_eq!(seen.header("x-forwarded-host"), ["b.example"]);
    assert_eq!(seen.header("x-forwarded-prefix"), ["/p"]);
    let forwarded = "for=6.6.6.6, for=127.0.0.1;host=\"a.example\";proto=http";
    assert_eq!(seen.header("forwarded"), [forwarded]);
}

#[test]
fn a_request_has_one_id_everywhere() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "");
    let mut http = client(&service);
    let given = http.request("GET", "/", &[("X-Request-Id", "mine-1")], "");
    assert_eq!(given.header("x-request-id"), Some("mine-1"));
    let named = [("X-Request-Id", "mine-2"), ("Connection", "x-request-id")];
    let named = client(&service).request("GET", "/named", &named, "");
    assert_eq!(named.header("x-request-id"), Some("mine-2"));
    assert_eq!(upstream.seen()[1].header("x-request-id"), ["mine-2"]);
    let bad = http.request("GET", "/", &[("X-Request-Id", "not good")], "");
    let made = bad.header("x-request-id").unwrap().to_owned();
    assert_eq!(made.len(), 16);
    let seen = upstream.seen();
    assert_eq!(seen[0].header("x-request-id"), ["mine-1"]);
    assert_eq!(seen[2].header("x-request-id"), [&*made]);
}

#[test]
fn an_answer_to_head_has_its_length_and_no_body() {
    let upstream = Upstream::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")
            .is_ok()
    });
    let service = before(&[&upstream], "");
    let mut http = client(&service);
    for _ in 0..2 {
        let answer = http.request("HEAD", "/", &[], "");
        assert_eq!(answer.header("content-length"), Some("5000"));
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_old_client_needs_no_host() {
    let upstream = Upstream::saying("old");
    let service = before(&[&upstream], "");
    let mut http = client(&service);
    http.send_raw(b"GET /x HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(http.read_answer(false).unwrap().body, "old");
    let seen = upstream.only();
    assert_eq!(seen.line(), "GET /x HTTP/1.1");
    assert_eq!(format!("http://{}", seen.header("host")[0]), upstream.url());
    assert!(seen.header("x-forwarded-host").is_empty());
}

#[test]
fn the_target_counts_and_not_a_host_that_differs() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "");
    let mut http = client(&service);
    http.send_raw(b"GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .unwrap();
    assert_eq!(http.read_answer(false).unwrap().status, 200);
    let seen = upstream.only();
    assert_eq!(seen.line(), "GET /x HTTP/1.1");
    assert_eq!(seen.header("host"), ["b.example"]);
}

/// A request to `a.example`.
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
