//! The fast path and hyper behave the same, for clients and for upstreams.

use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, WireAnswer, WireRequest};

use super::*;

/// The responses of the upstream, by path.
const RESPONSES: &[(&str, &str)] = &[
    (
        "/length",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: up\r\n\r\nhello",
    ),
    (
        "/chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
    ),
    ("/no-content", "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
    (
        "/not-modified",
        "HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n",
    ),
    (
        "/not-found",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    ),
    (
        "/internal-error",
        "HTTP/1.1 500 Custom Reason\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        "/hop-by-hop",
        "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         X-RateLimit-Limit: 7\r\nRateLimit: \"theirs\";r=1\r\nX-Request-Id: theirs\r\nContent-Length: 1\r\n\r\nx",
    ),
    (
        "/early-hints",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
    (
        "/two-lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    ),
    // HTTP/1.0 has no chunked encoding: RFC 9112, section 6.1.
    (
        "/http10-chunks",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "/http10-chunks-and-length",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (
        "/trailers",
        "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-RateLimit-Limit: 9\r\n\r\n",
    ),
    (
        "/switching-protocols",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ),
    ("/no-response", ""),
    // After this many interim responses; the gateway accepts up to 16.
    (
        "/interim-16",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
    (
        "/interim-17",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
    (
        "/interim-40",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
];

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";

/// Sends its connection to hyper for good: the fast path does not handle such a
/// `Connection` header.
const SWITCH_TO_HYPER: &str =
    "GET /not-found HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, x-none\r\n\r\n";

fn upstream() -> RawUpstream {
    RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            let (path, _) = request
                .target
                .split_once('?')
                .unwrap_or((&request.target, ""));
            let response = RESPONSES.iter().find(|(known, _)| *known == path);
            let (_, response) = response.expect("a known path");
            if let Some(count) = path.strip_prefix("/interim-") {
                connection.send(HINTS.repeat(count.parse().unwrap()));
            }
            let is_head = request.method == "HEAD";
            let response = match response.strip_prefix(HINTS) {
                Some(response) => {
                    connection.send(HINTS);
                    response
                }
                None => response,
            };
            match response.find("\r\n\r\n").filter(|_| is_head) {
                Some(head) => connection.send(&response[..head + 4]),
                None => connection.send(response),
            }
            if path == "/no-response" {
                return;
            }
        }
    })
}

/// Returns the status that the client gets for a path.
fn expected_status(path: &str) -> u16 {
    match path {
        "/no-content" => 204,
        "/not-modified" => 304,
        "/not-found" => 404,
        "/internal-error" => 500,
        "/two-lengths"
        | "/http10-chunks"
        | "/http10-chunks-and-length"
        | "/switching-protocols"
        | "/no-response"
        | "/interim-17"
        | "/interim-40" => 502,
        _ => 200,
    }
}

/// Removes the parts of a response that always differ.
fn normalize(mut response: WireAnswer) -> WireAnswer {
    response
        .headers
        .retain(|(name, _)| name != "date" && name != "x-request-id");
    for (name, value) in &mut response.headers {
        if name == "x-ratelimit-reset" {
            value.clear();
        }
    }
    response.headers.sort();
    response
}

fn normalize_request(mut request: WireRequest) -> WireRequest {
    request.headers.retain(|(name, _)| name != "x-request-id");
    request.headers.sort();
    request
}

/// Starts a gateway with a rule for all paths except `/not-found`.
fn limited(upstream: &RawUpstream, rule: &str) -> Service {
    let config = format!(
        "gateway: {{ routes: [ {{ id: all, upstreams: [\"http://{}\"], filters: [main] }} ] }}
filters: {{ main: {{ rule_set: s, exclude: [/not-found] }} }}
rule_sets: {{ s: {{ rules: [ {{ id: r, {rule} }} ] }} }}
",
        upstream.address()
    );
    Service::start(&["gateway"], &config)
}

#[test]
fn both_forward_the_same_request_and_the_same_response() {
    let upstream = upstream();
    let service = limited(
        &upstream,
        "key: [path, user], bands: [ { capacity: 9, window: 1h } ]",
    );
    let address = service.address("gateway");
    for &(path, _) in RESPONSES {
        for (method, body) in [("GET", ""), ("HEAD", ""), ("POST", "x=1"), ("DELETE", "")] {
            let mut exchanges = Vec::new();
            for transport in ["fast-path", "hyper"] {
                let mut client = RawClient::connect(address);
                if transport == "hyper" {
                    client.send(SWITCH_TO_HYPER);
                    assert_eq!(client.read_answer().unwrap().status, 404);
                }
                let before = upstream.requests().len();
                let length = match body {
                    "" => String::new(),
                    body => format!("Content-Length: {}\r\n", body.len()),
                };
                client.send(format!(
                    "{method} {path}?q=%20 HTTP/1.1\r\nHost: a.example:80\r\nX-User-Id: {method}-{transport}\r\n\
                     X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
                     X-Original-URL: /evil\r\nX-Rewrite-URL: /evil\r\nAccept: */*\r\nX-Twice: 1\r\n{length}X-Twice: 2\r\n\r\n{body}"
                ));
                let response = client.read_answer_to(method);
                let response =
                    response.unwrap_or_else(|error| panic!("{method} {path} {transport}: {error}"));
                // Interim responses are not forwarded.
                assert_eq!(
                    response.status,
                    expected_status(path),
                    "{method} {path} {transport}"
                );
                let mut requests = upstream.requests();
                assert_eq!(
                    requests.len(),
                    before + 1,
                    "{method} {path} {transport}: one request"
                );
                // Requests are listed by connection, so the newest is not the last one. The
                // user identifies it.
                let user = format!("{method}-{transport}");
                requests.retain(|it| {
                    it.target.starts_with(path)
                        && it.headers.contains(&("x-user-id".into(), user.clone()))
                });
                let mut request = normalize_request(requests.pop().unwrap());
                let values = request.headers.iter().map(|(_, value)| value);
                assert_eq!(values.filter(|value| *value == "/evil").count(), 0);
                for (name, value) in &mut request.headers {
                    if name == "x-user-id" {
                        value.clear();
                    }
                }
                exchanges.push((request, normalize(response)));
            }
            let [fast_path, hyper] = &exchanges[..] else {
                unreachable!()
            };
            assert_eq!(
                fast_path.0, hyper.0,
                "{method} {path}: the request upstream"
            );
            assert_eq!(fast_path.1, hyper.1, "{method} {path}: the response");
        }
    }
}

/// Trailers that are allowed only as headers are dropped.
#[test]
fn trailers_are_forwarded_to_clients_that_accept_them() {
    let upstream = upstream();
    let service = limited(
        &upstream,
        "scope: global, bands: [ { capacity: 1000, window: 1h } ]",
    );
    for (lines, trailers) in [
        ("", &[][..]),
        // Through hyper, without `TE: trailers`.
        ("Connection: keep-alive, x-none\r\n", &[]),
        ("TE: gzip\r\nConnection: te\r\n", &[]),
        (
            "TE: trailers\r\nConnection: te\r\n",
            &[("x-sum".to_owned(), "1".to_owned())],
        ),
    ] {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!("GET /trailers HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let response = client.read_answer().unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "hello"));
        assert_eq!(response.trailers, trailers, "{lines}");
        assert_eq!(
            response.values("trailer").is_empty(),
            trailers.is_empty(),
            "{lines}"
        );
        // The connection is still in sync.
        assert_eq!(client.get("/length").unwrap().text(), "hello");
    }
}

/// The header states the time of the decision, not of the response.
#[test]
fn the_reset_header_is_exact_to_the_second() {
    let upstream = upstream();
    let service = limited(
        &upstream,
        "scope: global, algorithm: fixed_window, bands: [ { capacity: 2, window: 300d } ]",
    );
    let mut statuses = Vec::new();
    for transport in ["fast-path", "hyper", "fast-path"] {
        let mut client = RawClient::connect(service.address("gateway"));
        if transport == "hyper" {
            client.send(SWITCH_TO_HYPER);
            assert_eq!(client.read_answer().unwrap().status, 404);
        }
        let response = client.get("/length").unwrap();
        let reset: u64 = response
            .values("x-ratelimit-reset")
            .concat()
            .parse()
            .unwrap();
        assert_eq!(reset % (300 * 86_400), 0, "{transport}: {reset}");
        statuses.push(response.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

/// Many clients send the body in a separate packet.
#[test]
fn a_body_may_arrive_after_its_head() {
    let upstream = upstream();
    let config = format!(
        "gateway: {{ routes: [ {{ id: all, upstreams: [\"http://{}\"] }} ] }}\n",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    let mut client = RawClient::connect(service.address("gateway"));
    // The last body arrives late.
    for (index, pause) in [0, 10, 10, 300].into_iter().enumerate() {
        let body = format!("body {index}");
        let length = body.len();
        client.send(format!(
            "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        std::thread::sleep(Duration::from_millis(pause));
        // Nothing of the next request is lost.
        client.send(format!("{body}GET /not-found HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.read_answer().unwrap().text(), "hello");
        assert_eq!(client.read_answer().unwrap().status, 404);
        let requests = upstream.requests();
        let mut posted = requests.iter().filter(|it| it.method == "POST");
        assert!(posted.any(|it| it.body == body.as_bytes()), "{requests:?}");
    }
}

/// A response in several pieces leaves its connection reusable.
#[test]
fn upstream_connections_are_reused_after_large_responses() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
            connection.send("x".repeat(100_000));
        }
    });
    let config = format!(
        "gateway: {{ routes: [ {{ id: all, upstreams: [\"http://{}\"] }} ] }}\n",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    let mut client = RawClient::connect(service.address("gateway"));
    for _ in 0..20 {
        assert_eq!(client.get("/").unwrap().body.len(), 100_000);
    }
    assert_eq!(upstream.accepted(), 1);
}
