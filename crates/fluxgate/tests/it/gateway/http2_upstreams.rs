//! Upstreams that speak HTTP/2.

mod connections;
mod streams;

use std::process::Command;

use fluxgate_testkit::{Certificates, RawClient, WireRequest};

use super::*;
use crate::http2_peers::{Http2Client, Http2Upstream, Settings, block_on, request};

/// Starts a gateway that forwards everything to these upstreams, which are written as in YAML.
/// `settings` are lines under `gateway`.
fn gateway(upstreams: &str, settings: &str) -> Service {
    let config =
        format!("gateway:\n{settings}  routes:\n    - {{ id: all, upstreams: [{upstreams}] }}\n");
    Service::start(&["gateway"], &config)
}

fn gateway_to(upstream: &Http2Upstream, settings: &str) -> Service {
    gateway(&format!("'{}'", upstream.url()), settings)
}

/// Header lines that select the transport: the fast path, or the HTTP library.
const TRANSPORTS: [&str; 2] = ["", "TE: trailers\r\nConnection: TE\r\n"];

/// Returns the only request to this path.
#[track_caller]
fn only_request(upstream: &Http2Upstream, target: &str) -> WireRequest {
    let mut requests = upstream.requests();
    requests.retain(|request| request.target == target);
    assert_eq!(requests.len(), 1, "{target}: {requests:#?}");
    requests.remove(0)
}

#[test]
fn requests_of_either_protocol_get_there_alike() {
    let upstream = Http2Upstream::start();
    let service = gateway_to(&upstream, "");
    let mut client = RawClient::connect(service.address("gateway"));
    for (number, transport) in TRANSPORTS.into_iter().enumerate() {
        client.send(format!(
            "POST /{number}?q=%2F HTTP/1.1\r\nHost: a.example:81\r\nContent-Length: 5\r\n\
             Cookie: a=b; c=d\r\nX-A: 1\r\nX-A: 2\r\nKeep-Alive: 5\r\n{transport}\r\nhello"
        ));
        let answer = client.read_answer().unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    }
    client.send(
        "PUT /2?q=%2F HTTP/1.1\r\nHost: a.example:81\r\nCookie: a=b; c=d\r\nX-A: 1\r\nX-A: 2\r\n\
         Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    );
    assert_eq!(client.read_answer().unwrap().text(), "ok");
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        let headers = [
            ("cookie", "a=b"),
            ("cookie", "c=d"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("te", "trailers"),
        ];
        let mut head = request("POST", "/3?q=%2F", &headers);
        *head.uri_mut() = "http://a.example:81/3?q=%2F".parse().unwrap();
        let answer = client.send(head, "hello").await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        assert_eq!(answer.value("content-length"), Some("2"));
    });
    for number in 0..4 {
        let request = only_request(&upstream, &format!("/{number}?q=%2F"));
        assert_eq!(request.body, b"hello", "{number}");
        for (name, values) in [
            ("host", &["a.example:81"][..]),
            ("cookie", &["a=b; c=d"]),
            ("x-a", &["1", "2"]),
            ("x-forwarded-for", &["127.0.0.1"]),
            ("x-forwarded-host", &["a.example:81"]),
            ("keep-alive", &[]),
            ("connection", &[]),
            ("transfer-encoding", &[]),
        ] {
            assert_eq!(request.values(name), values, "{number} {name}");
        }
        assert_eq!(request.values("x-request-id").len(), 1);
        let te: &[&str] = if number % 2 == 1 { &["trailers"] } else { &[] };
        assert_eq!(request.values("te"), te, "{number}");
        let length: &[&str] = if number < 2 { &["5"] } else { &[] };
        assert_eq!(request.values("content-length"), length, "{number}");
    }
}

/// Path, status, headers and body of a response.
type Response = (
    &'static str,
    u16,
    &'static [(&'static str, &'static str)],
    &'static str,
);

/// The responses of the upstream.
const RESPONSES: &[Response] = &[
    (
        "/length",
        200,
        &[("content-length", "5"), ("server", "up")],
        "hello",
    ),
    ("/no-length", 200, &[("x-a", "1")], "hello"),
    ("/empty", 200, &[], ""),
    ("/no-content", 204, &[("x-a", "1")], ""),
    ("/not-modified", 304, &[("etag", "\"e\"")], ""),
    ("/not-found", 404, &[("content-length", "2")], "no"),
    ("/unknown", 599, &[("content-length", "0")], ""),
];

#[test]
fn responses_get_back_alike() {
    let upstream = Http2Upstream::serving(Settings::default(), |mut call| async move {
        let path = call.path().to_owned();
        let known = RESPONSES.iter().find(|(known, ..)| *known == path);
        let (_, status, headers, body) = known.expect("a known path");
        let is_head = call.request.method() == "HEAD";
        call.answer(*status, headers, if is_head { "" } else { body });
    });
    let service = gateway_to(&upstream, "");
    let mut client = RawClient::connect(service.address("gateway"));
    for (path, status, headers, body) in RESPONSES {
        for method in ["GET", "HEAD"] {
            let body = if method == "HEAD" { "" } else { *body };
            for transport in TRANSPORTS {
                client.send(format!(
                    "{method} {path} HTTP/1.1\r\nHost: a\r\n{transport}\r\n"
                ));
                let answer = client.read_answer_to(method).unwrap();
                let seen = (answer.status, answer.text());
                assert_eq!(seen, (*status, body.to_owned()), "{method} {path}");
                for (name, value) in *headers {
                    assert_eq!(answer.values(name), [*value], "{method} {path}");
                }
                assert_eq!(answer.values("date").len(), 1);
            }
            block_on(async {
                let mut client = Http2Client::connect(service.address("gateway")).await;
                let answer = client.send(request(method, path, &[]), "").await.unwrap();
                assert_eq!(
                    (answer.status, &answer.body[..]),
                    (*status, body.as_bytes())
                );
                for (name, value) in *headers {
                    assert_eq!(answer.value(name), Some(*value), "{method} {path}");
                }
            });
        }
    }
}

#[test]
fn trailers_pass_in_both_directions() {
    let upstream = Http2Upstream::serving(Settings::default(), |mut call| async move {
        if call.read().await.is_err() {
            return;
        }
        let mut stream = call.begin(200, &[("trailer", "x-sum")], false);
        stream.send_data("hello".into(), false).unwrap();
        let mut trailers = http::HeaderMap::new();
        for (name, value) in [
            ("x-sum", "1"),
            ("grpc-status", "0"),
            ("x-ratelimit-limit", "9"),
            ("content-length", "7"),
        ] {
            trailers.insert(name, value.parse().unwrap());
        }
        stream.send_trailers(trailers).unwrap();
    });
    let config = format!(
        "filters: {{ f: {{ rule_set: s, identity: {{ user: 'header:X-Me' }} }} }}\n\
         rule_sets: {{ s: {{ rules: [ {{ id: r, scope: per_user, on_missing_key: skip, bands: [ {{ capacity: 99, window: 1m }} ] }} ] }} }}\n\
         gateway: {{ routes: [ {{ id: all, upstreams: ['{}'], filters: [f] }} ] }}\n",
        upstream.url()
    );
    let service = Service::start(&["gateway"], &config);
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        for (te, expected) in [(&[("te", "trailers")][..], true), (&[], false)] {
            let path = format!("/{expected}");
            let announced = ("trailer", "x-sum, x-me, content-length, x-forwarded-for");
            let headers = [te, &[announced]].concat();
            let (response, mut stream) =
                client.begin(request("POST", &path, &headers), false).await;
            stream.send_data("hello".into(), false).unwrap();
            let mut trailers = http::HeaderMap::new();
            for (name, value) in [
                ("x-sum", "2"),
                ("x-not-announced", "3"),
                ("x-me", "evil"),
                ("x-forwarded-for", "6.6.6.6"),
                ("content-length", "6"),
            ] {
                trailers.insert(name, value.parse().unwrap());
            }
            stream.send_trailers(trailers).unwrap();
            let answer = crate::http2_peers::read(response).await.unwrap();
            assert_eq!(answer.body, b"hello");
            let names: Vec<_> = answer.trailers.keys().map(|name| name.as_str()).collect();
            let both: &[&str] = if expected {
                &["x-sum", "grpc-status"]
            } else {
                &[]
            };
            assert_eq!(names, both);
            let request = only_request(&upstream, &path);
            assert_eq!(request.trailers, [("x-sum".to_owned(), "2".to_owned())]);
            assert_eq!(request.values("trailer"), [""; 0]);
        }
    });
    // As the last part of a chunked body, which announces them.
    let mut client = RawClient::connect(service.address("gateway"));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\n\r\n");
    let answer = client.read_answer().unwrap();
    assert_eq!(answer.text(), "hello");
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "1".to_owned())]);
}

#[test]
fn a_server_chooses_the_protocol_over_tls() {
    let certificates = Certificates::generate();
    let settings = Settings {
        tls: Some(&certificates),
        ..Settings::default()
    };
    let upstream = Http2Upstream::serving(settings, |mut call| async move {
        if call.read().await.is_ok() {
            call.answer(200, &[], "over HTTP/2");
        }
    });
    let service_with = |ca: &std::path::Path| {
        let (url, ca) = (upstream.url(), ca.display());
        gateway(&format!("{{ url: '{url}', ca: '{ca}' }}"), "")
    };
    let service = service_with(&certificates.ca());
    for _ in 0..3 {
        assert_eq!(client(&service).get("/").body, "over HTTP/2");
    }
    assert_eq!(upstream.requests()[0].version, "HTTP/2");
    // Its certificate has another authority.
    let service = service_with(&Certificates::generate().ca());
    assert_problem(&client(&service).get("/"), 502);
}

#[test]
fn websocket_needs_http1() {
    let upstream = Http2Upstream::start();
    let service = gateway_to(&upstream, "");
    let mut client = RawClient::connect(service.address("gateway"));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.read_answer().unwrap().status, 501);
    assert_eq!(upstream.streams(), 0);
    let log = service.wait_for_log("not forwarded");
    let why = log["why"].as_str().unwrap();
    assert!(why.contains("cannot switch to another protocol"), "{log}");
}

#[test]
fn curl_reaches_an_upstream_over_http2() {
    let upstream = Http2Upstream::start();
    let service = gateway_to(&upstream, "");
    let url = format!("http://{}/x", service.address("gateway"));
    for (flag, status_line) in [
        ("--http1.1", "HTTP/1.1 200 OK"),
        ("--http2-prior-knowledge", "HTTP/2 200"),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-i", flag, &url, "-T", "Cargo.toml"]);
        let output = curl.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(status_line) && text.ends_with("ok"), "{text}");
    }
    let requests = upstream.requests();
    assert!(requests.iter().all(|request| !request.body.is_empty()));
    assert_eq!(requests.len(), 2);
}
