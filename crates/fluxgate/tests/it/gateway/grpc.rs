//! gRPC through the gateway, with clients and servers that share no code with it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use fluxgate_testkit::{RawClient, RedisServer, wait_until};
use serde_json::{Value, json};

use super::*;
use crate::http2_peers::{Http2Client, Http2Upstream, block_on, request};
use crate::service::grpc::client::Client;
use crate::support::{fetched, project_file, python};

/// The lines that a client prints whose calls are all as expected.
const ALL_CALLS: [&str; 10] = [
    "unary",
    "large",
    "server streaming",
    "client streaming",
    "both streaming",
    "deadline is passed on",
    "deadline",
    "cancelled",
    "details",
    "unknown",
];

/// Returns a command of the client and server of grpc-go.
fn grpc_go(arguments: &[&str]) -> Command {
    let mut command = Command::new(fetched("FLUXGATE_GRPC_GO", "grpc-go/grpc_go"));
    command.args(arguments).stdin(Stdio::piped());
    command
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(python());
    command.arg(project_file(
        "crates/fluxgate/tests/it/gateway/grpc_calls.py",
    ));
    command.args(arguments).stdin(Stdio::piped());
    command
}

/// A gRPC server, which ends when dropped.
struct GrpcServer {
    child: Child,
    address: SocketAddr,
}

impl GrpcServer {
    /// Starts a server of grpcio.
    fn start() -> Self {
        Self::run(script(&["serve"]))
    }

    fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.trim().parse().unwrap();
        Self { child, address }
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a gateway with one route to this upstream; `fields` are further ones of the route.
fn start(upstream: &str, fields: &str, config: &str) -> Service {
    let route = format!("{{ id: all, {fields} upstreams: ['{upstream}'] }}");
    super::start(&[route], config)
}

/// Makes a call and returns its status.
fn status(service: &Service) -> Value {
    let address = service.address("gateway").to_string();
    let output = script(&["status", &address]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Each library calls the service of each through the gateway.
#[test]
fn calls_of_every_kind_pass() {
    let libraries = [script, grpc_go];
    for (number, serves) in libraries.into_iter().enumerate() {
        let server = GrpcServer::run(serves(&["serve"]));
        let service = start(&format!("h2c://{}", server.address), "", "");
        let address = service.address("gateway").to_string();
        for calls in libraries {
            let output = calls(&["call", &address]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines, ALL_CALLS, "server {number}: {output:?}");
        }
    }
}

/// FluxGate's own gRPC service, which is built on tonic, behind its gateway.
#[test]
fn a_tonic_service_is_reached() {
    let behind = Service::start(
        &["grpc"],
        "rule_sets: { api: { rules: [ { id: r, scope: global, bands: [ { capacity: 2, window: 1h } ] } ] } }\n",
    );
    let service = start(&format!("h2c://{}", behind.address("grpc")), "", "");
    let mut client = Client::at(service.address("gateway"));
    let check = json!({ "call": "check", "request": { "domain": "api", "descriptors": [ { "entries": [ { "key": "a", "value": "b" } ] } ] } });
    let codes: Vec<_> = (0..3)
        .map(|_| client.call(&check)["response"]["overall_code"].clone())
        .collect();
    assert_eq!(codes, ["OK", "OK", "OVER_LIMIT"]);
    assert_eq!(client.health("")["status"], "SERVING");
    // Reflection streams in both directions.
    let services = client.call(&json!({ "call": "services" }));
    assert!(
        services["services"].as_array().unwrap().len() > 1,
        "{services}"
    );
    client.send(&json!({ "call": "watch", "service": "" }));
    assert_eq!(client.next()["status"], "SERVING");
    drop(behind);
    // The stream ends with the service: first by a status, if it is announced in time.
    let mut last = client.next();
    if last["status"] == "NOT_SERVING" {
        last = client.next();
    }
    assert!(last["end"] == true || last["error"].is_object(), "{last}");
}

const LIMITED: &str = "filters: { f: { rule_set: s } }
rule_sets:
  s:
    rules:
      - { id: no, action: deny, status: 451, match: { headers: { x-forbidden: '1' } } }
      - { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1m } ] }
";

#[test]
fn a_used_up_quota_is_a_status_of_grpc() {
    let server = GrpcServer::start();
    let upstream = format!("h2c://{}", server.address);
    let service = start(&upstream, "filters: [f],", LIMITED);
    assert_eq!(status(&service)["code"], 0);
    let refused = status(&service);
    assert_eq!(refused["code"], 8, "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("the quota is used up; retry after "));
    let metadata = &refused["metadata"];
    assert_eq!(metadata["x-ratelimit-remaining"], "0", "{refused}");
    let seconds: u64 = metadata["retry-after"].as_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{refused}");
}

#[test]
fn refusals_are_alike_over_either_protocol() {
    let upstream = Http2Upstream::start();
    let service = start(&upstream.url(), "filters: [f],", LIMITED);
    let address = service.address("gateway");
    let mut client = RawClient::connect(address);
    let mut over_http1 = |lines: &str, content_type: &str| {
        client.send(format!(
            "POST /p.S/M HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n\
             Content-Length: 5\r\n{lines}\r\n\0\0\0\0\0"
        ));
        client.read_answer().unwrap()
    };
    assert_eq!(over_http1("", "application/grpc").status, 200);
    // On the fast path, and through the HTTP library.
    for transport in ["", "TE: trailers\r\nConnection: te\r\n"] {
        for content_type in ["application/grpc", "application/grpc-web+proto"] {
            let refused = over_http1(transport, content_type);
            assert_eq!((refused.status, refused.text()), (200, String::new()));
            assert_eq!(refused.values("grpc-status"), ["8"]);
            assert_eq!(refused.values("content-type"), [content_type]);
            assert_eq!(refused.values("x-ratelimit-limit"), ["1"]);
            assert_eq!(refused.values("retry-after").len(), 1);
            let pushback: u64 = refused.values("grpc-retry-pushback-ms")[0].parse().unwrap();
            assert!((1..=60_000).contains(&pushback), "{pushback}");
        }
        let forbidden = format!("X-Forbidden: 1\r\n{transport}");
        let refused = over_http1(&forbidden, "application/grpc");
        assert_eq!(refused.values("grpc-status"), ["7"]);
        assert_eq!(
            refused.values("grpc-message"),
            ["a rule forbids this request"]
        );
        assert_eq!(refused.values("grpc-retry-pushback-ms"), ["-1"]);
        assert!(refused.values("x-ratelimit-limit").is_empty());
        assert_eq!(over_http1(transport, "application/json").status, 429);
    }
    block_on(async {
        let mut client = Http2Client::connect(address).await;
        for (headers, code) in [(&[][..], "8"), (&[("x-forbidden", "1")], "7")] {
            let content_type = ("content-type", "application/grpc+proto");
            let head = request("POST", "/p.S/M", &[headers, &[content_type]].concat());
            let refused = client.send(head, "\0\0\0\0\0").await.unwrap();
            assert_eq!((refused.status, refused.body.len()), (200, 0));
            // All is in the head: "Trailers-Only".
            assert_eq!(refused.headers["grpc-status"], code);
            assert_eq!(refused.headers["content-type"], "application/grpc+proto");
            assert!(refused.trailers.is_empty());
        }
    });
    assert_eq!(upstream.streams(), 1);
}

#[test]
fn a_failed_store_is_a_status_of_grpc() {
    let redis = RedisServer::start();
    let upstream = Http2Upstream::start();
    let config = format!(
        "store: {{ redis: {{ url: '{}' }} }}\nfilters: {{ f: {{ rule_set: s }} }}\n\
         rule_sets: {{ s: {{ on_error: deny, rules: [ {{ id: r, scope: global, bands: [ {{ capacity: 99, window: 1m }} ] }} ] }} }}\n",
        redis.url()
    );
    let service = start(&upstream.url(), "filters: [f],", &config);
    let mut http = client(&service);
    let headers = [("Content-Type", "application/grpc")];
    let mut call = || http.request("POST", "/p.S/M", &headers, "12345");
    wait_until("the store answers", || {
        call().header("grpc-status").is_none()
    });
    redis.kill();
    wait_until("the store fails", || call().header("grpc-status").is_some());
    let refused = call();
    assert_eq!(refused.status, 200, "{refused:?}");
    assert_eq!(refused.header("grpc-status"), Some("14"));
    assert_eq!(refused.header("grpc-retry-pushback-ms"), Some("1000"));
    assert_eq!(refused.header("retry-after"), Some("1"));
}

/// Errors of the gateway itself have the codes that gRPC has for those of HTTP.
#[test]
fn other_errors_are_statuses_of_grpc() {
    let upstream = Http2Upstream::start();
    let plain = Upstream::with_body("over HTTP/1.1");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_address = closed.local_addr().unwrap();
    drop(closed);
    let config = format!(
        "gateway:
  limits: {{ body_bytes: 1000 }}
  routes:
    - {{ id: grpc, match: {{ path: [/grpc.S/*] }}, upstreams: ['{}'] }}
    - {{ id: plain, match: {{ path: [/plain.S/*] }}, upstreams: ['{}'] }}
    - {{ id: closed, match: {{ path: [/closed.S/*] }}, upstreams: ['h2c://{closed_address}'] }}
",
        upstream.url(),
        plain.url()
    );
    let service = Service::start(&["gateway"], &config);
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        let large = "x".repeat(2000);
        for (path, headers, body, code) in [
            ("/grpc.S/M", &[][..], "hello", None),
            ("/none.S/M", &[], "hello", Some("12")),
            ("/plain.S/M", &[], "hello", Some("12")),
            ("/closed.S/M", &[], "hello", Some("14")),
            (
                "/grpc.S/M",
                &[("content-length", "2000")],
                &*large,
                Some("8"),
            ),
            ("/grpc.S/M", &[("content_length", "5")], "hello", Some("3")),
        ] {
            let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
            let head = request("POST", path, &[headers, &grpc].concat());
            let answer = client.send(head, body.to_owned()).await.unwrap();
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert_eq!(answer.value("grpc-status"), code, "{path}: {answer:?}");
            let is_clear = answer.value("grpc-message").is_some_and(|it| it.len() > 5);
            assert_eq!(is_clear, code.is_some(), "{answer:?}");
        }
        // gRPC-Web is made for HTTP/1.1.
        let web = request(
            "POST",
            "/plain.S/M",
            &[("content-type", "application/grpc-web")],
        );
        let answer = client.send(web, "hello").await.unwrap();
        assert_eq!(answer.body, b"over HTTP/1.1");
    });
    assert_eq!(plain.requests().len(), 1);
}

/// A call that must wait is forwarded when its turn comes.
#[test]
fn a_call_may_wait() {
    let upstream = Http2Upstream::start();
    let config = "filters: { f: { rule_set: s } }
rule_sets: { s: { rules: [ { id: r, scope: global, on_exceed: wait, max_wait: 10s, bands: [ { rate: 2/s, burst: 1 } ] } ] } }
";
    let service = start(&upstream.url(), "filters: [f],", config);
    let mut http = client(&service);
    let start = fluxgate_testkit::now();
    for _ in 0..3 {
        let headers = [("Content-Type", "application/grpc")];
        let answer = http.request("POST", "/p.S/M", &headers, "12345");
        assert_eq!(
            (answer.body.as_str(), answer.header("grpc-status")),
            ("ok", None)
        );
    }
    let took = start.elapsed();
    assert!(took >= std::time::Duration::from_millis(900), "{took:?}");
}
