//! Plain requests take a shorter way than others; nobody may see which.

use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, WireAnswer, WireRequest};

use super::*;

/// What the upstream answers, by the path that is asked for.
const ANSWERS: &[(&str, &str)] = &[
    (
        "/length",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: up\r\n\r\nhello",
    ),
    (
        "/chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
    ),
    ("/nothing", "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
    (
        "/unchanged",
        "HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n",
    ),
    (
        "/missing",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    ),
    (
        "/broken",
        "HTTP/1.1 500 Oh Dear\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        "/hops",
        "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         X-RateLimit-Limit: 7\r\nRateLimit: \"theirs\";r=1\r\nX-Request-Id: theirs\r\nContent-Length: 1\r\n\r\nx",
    ),
    (
        "/early",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
    (
        "/nonsense",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    ),
    // HTTP/1.0 knows no chunks: RFC 9112, 6.1.
    (
        "/old-chunks",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "/old-chunks-and-length",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (
        "/trailers",
        "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-RateLimit-Limit: 9\r\n\r\n",
    ),
    (
        "/changes",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ),
    ("/silence", ""),
    // With 16 interim answers before it, and with more.
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

/// Not plain, so all that follows on its connection goes the longer way.
const NOT_PLAIN: &str =
    "GET /missing HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, x-none\r\n\r\n";

fn upstream() -> RawUpstream {
    RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            let (path, _) = request
                .target
                .split_once('?')
                .unwrap_or((&request.target, ""));
            let answer = ANSWERS.iter().find(|(known, _)| *known == path);
            let (_, answer) = answer.expect("a path that is known");
            if let Some(count) = path.strip_prefix("/interim-") {
                connection.send(HINTS.repeat(count.parse().unwrap()));
            }
            let is_head = request.method == "HEAD";
            let answer = match answer.strip_prefix(HINTS) {
                Some(answer) => {
                    connection.send(HINTS);
                    answer
                }
                None => answer,
            };
            match answer.find("\r\n\r\n").filter(|_| is_head) {
                Some(head) => connection.send(&answer[..head + 4]),
                None => connection.send(answer),
            }
            if path == "/silence" {
                return;
            }
        }
    })
}

/// What the client gets for an answer of the upstream.
fn expected_status(path: &str) -> u16 {
    match path {
        "/nothing" => 204,
        "/unchanged" => 304,
        "/missing" => 404,
        "/broken" => 500,
        "/nonsense"
        | "/old-chunks"
        | "/old-chunks-and-length"
        | "/changes"
        | "/silence"
        | "/interim-17"
        | "/interim-40" => 502,
        _ => 200,
    }
}

/// Without what is never the same twice.
fn comparable(mut answer: WireAnswer) -> WireAnswer {
    answer
        .headers
        .retain(|(name, _)| name != "date" && name != "x-request-id");
    for (name, value) in &mut answer.headers {
        if name == "x-ratelimit-reset" {
            value.clear();
        }
    }
    answer.headers.sort();
    answer
}

fn comparable_request(mut request: WireRequest) -> WireRequest {
    request.headers.retain(|(name, _)| name != "x-request-id");
    request.headers.sort();
    request
}

/// A gateway with a rule for everything but `/missing`.
fn limited(upstream: &RawUpstream, rule: &str) -> Service {
    let config = format!(
        "gateway: {{ routes: [ {{ id: all, upstreams: [\"http://{}\"], filters: [main] }} ] }}
filters: {{ main: {{ rule_set: s, exclude: [/missing] }} }}
rule_sets: {{ s: {{ rules: [ {{ id: r, {rule} }} ] }} }}
",
        upstream.address()
    );
    Service::start(&["gateway"], &config)
}

#[test]
fn both_ways_ask_and_answer_the_same() {
    let upstream = upstream();
    let service = limited(
        &upstream,
        "key: [path, user], bands: [ { capacity: 9, window: 1h } ]",
    );
    let address = service.address("gateway");
    for &(path, _) in ANSWERS {
        for (method, body) in [("GET", ""), ("HEAD", ""), ("POST", "x=1"), ("DELETE", "")] {
            let mut seen = Vec::new();
            for way in ["plain", "other"] {
                let mut client = RawClient::connect(address);
                if way == "other" {
                    client.send(NOT_PLAIN);
                    assert_eq!(client.read_answer().unwrap().status, 404);
                }
                let before = upstream.requests().len();
                let length = match body {
                    "" => String::new(),
                    body => format!("Content-Length: {}\r\n", body.len()),
                };
                client.send(format!(
                    "{method} {path}?q=%20 HTTP/1.1\r\nHost: a.example:80\r\nX-User-Id: {method}-{way}\r\n\
                     X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
                     Accept: */*\r\nX-Twice: 1\r\n{length}X-Twice: 2\r\n\r\n{body}"
                ));
                let answer = client.read_answer_to(method);
                let answer =
                    answer.unwrap_or_else(|error| panic!("{method} {path} {way}: {error}"));
                // Interim answers are not passed on.
                assert_eq!(
                    answer.status,
                    expected_status(path),
                    "{method} {path} {way}"
                );
                let mut requests = upstream.requests();
                assert_eq!(
                    requests.len(),
                    before + 1,
                    "{method} {path} {way}: one request"
                );
                // Connections are listed in their order; the newest request is
                // the one that names this user.
                let user = format!("{method}-{way}");
                requests.retain(|it| {
                    it.target.starts_with(path)
                        && it.headers.contains(&("x-user-id".into(), user.clone()))
                });
                let mut request = comparable_request(requests.pop().unwrap());
                for (name, value) in &mut request.headers {
                    if name == "x-user-id" {
                        value.clear();
                    }
                }
                seen.push((request, comparable(answer)));
            }
            let [plain, other] = &seen[..] else {
                unreachable!()
            };
            assert_eq!(plain.0, other.0, "{method} {path}: what the upstream gets");
            assert_eq!(plain.1, other.1, "{method} {path}: what the client gets");
        }
    }
}

/// Trailers are for clients that ask for them, and never say what headers must.
#[test]
fn trailers_are_passed_on_to_those_who_take_them() {
    let upstream = upstream();
    let service = limited(
        &upstream,
        "scope: global, bands: [ { capacity: 1000, window: 1h } ]",
    );
    for (lines, trailers) in [
        ("", &[][..]),
        // Not plain, and no wish for trailers either.
        ("Connection: keep-alive, x-none\r\n", &[]),
        ("TE: gzip\r\nConnection: te\r\n", &[]),
        (
            "TE: trailers\r\nConnection: te\r\n",
            &[("x-sum".to_owned(), "1".to_owned())],
        ),
    ] {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!("GET /trailers HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let answer = client.read_answer().unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
        assert_eq!(answer.trailers, trailers, "{lines}");
        assert_eq!(
            answer.values("trailer").is_empty(),
            trailers.is_empty(),
            "{lines}"
        );
        // The connection has not lost its place.
        assert_eq!(client.get("/length").unwrap().text(), "hello");
    }
}

/// It is that of the decision, however long the upstream takes.
#[test]
fn the_end_of_a_window_is_told_to_the_second_on_both_ways() {
    let upstream = upstream();
    let service = limited(
        &upstream,
        "scope: global, algorithm: fixed_window, bands: [ { capacity: 2, window: 1d } ]",
    );
    let mut seen = Vec::new();
    for way in ["plain", "other", "refused"] {
        let mut client = RawClient::connect(service.address("gateway"));
        if way == "other" {
            client.send(NOT_PLAIN);
            assert_eq!(client.read_answer().unwrap().status, 404);
        }
        let answer = client.get("/length").unwrap();
        let reset: u64 = answer.values("x-ratelimit-reset").concat().parse().unwrap();
        assert_eq!(reset % 86_400, 0, "{way}: {reset}");
        seen.push(answer.status);
    }
    assert_eq!(seen, [200, 200, 429]);
}

/// Many clients send a body right after its head, and not with it.
#[test]
fn a_body_may_follow_its_head() {
    let upstream = upstream();
    let config = format!(
        "gateway: {{ routes: [ {{ id: all, upstreams: [\"http://{}\"] }} ] }}\n",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    let mut client = RawClient::connect(service.address("gateway"));
    // The last is a while in coming.
    for (index, pause) in [0, 10, 10, 300].into_iter().enumerate() {
        let body = format!("body {index}");
        let length = body.len();
        client.send(format!(
            "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        std::thread::sleep(Duration::from_millis(pause));
        // Nothing of the next request is lost.
        client.send(format!("{body}GET /missing HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.read_answer().unwrap().text(), "hello");
        assert_eq!(client.read_answer().unwrap().status, 404);
        let requests = upstream.requests();
        let mut posted = requests.iter().filter(|it| it.method == "POST");
        assert!(posted.any(|it| it.body == body.as_bytes()), "{requests:?}");
    }
}

/// Answers that come in several pieces leave their connection as good as new.
#[test]
fn connections_to_upstreams_are_used_again_whatever_comes_over_them() {
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
