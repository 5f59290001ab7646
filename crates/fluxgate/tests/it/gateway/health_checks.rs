//! Active health checks, weights, and what routes set for their upstreams.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use fluxgate_testkit::{Certificates, wait_until};

use super::*;
use crate::support::Dir;

/// A header that sends a request through hyper instead of the fast path.
const HYPER: [(&str, &str); 1] = [("TE", "trailers")];

/// Starts an upstream that answers with its name, and health checks with this status.
fn checked(name: &'static str, status: &Arc<AtomicU16>) -> Upstream {
    let status = Arc::clone(status);
    Upstream::start(move |request, stream| {
        let (status, body) = if request.request_line() == "GET /healthz?deep HTTP/1.1" {
            (status.load(Ordering::Relaxed), "health")
        } else {
            (200, name)
        };
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .is_ok()
    })
}

/// Returns the health and the reason of each upstream.
fn health(service: &Service) -> Vec<(String, Option<String>)> {
    let routes: serde_json::Value =
        serde_json::from_str(&service.http().get("/v1/routes").body).unwrap();
    let upstreams = routes["routes"][0]["upstreams"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    upstreams
        .iter()
        .map(|it| (text(&it["health"]).unwrap(), text(&it["reason"])))
        .collect()
}

#[test]
fn an_upstream_whose_check_fails_gets_no_requests_until_it_succeeds() {
    let status = Arc::new(AtomicU16::new(200));
    let healthy = Arc::new(AtomicU16::new(200));
    let upstreams = [checked("a", &status), checked("b", &healthy)];
    let check = "health: { path: \"/healthz?deep\", interval: 50ms, timeout: 10s, healthy: 2, unhealthy: 2 },";
    let service = start(&[route("all", check, &[&upstreams[0], &upstreams[1]])], "");
    let mut http = client(&service);
    let mut bodies = |count: usize| {
        let bodies = (0..count).map(|_| http.get("/").body);
        bodies.collect::<Vec<_>>()
    };
    wait_until("both get requests", || {
        let bodies = bodies(2);
        bodies.contains(&"a".into()) && bodies.contains(&"b".into())
    });
    status.store(503, Ordering::Relaxed);
    wait_until("the first is out", || health(&service)[0].0 == "out");
    let reason = "the health check fails: the status is 503, not 200";
    assert_eq!(health(&service)[0].1.as_deref(), Some(reason));
    assert_eq!(bodies(6), ["b"; 6]);
    let line = service.wait_for_log("an upstream is out");
    assert_eq!(line["reason"], reason);
    let metrics = service.http().get("/metrics").body;
    let ejected = format!(
        "fluxgate_upstream_ejections_total{{route=\"all\",upstream=\"{}\",reason=\"check\"}} 1",
        upstreams[0].url().replace("http://", "")
    );
    assert!(metrics.lines().any(|line| line == ejected), "{metrics}");

    // If all are out, all are tried.
    healthy.store(500, Ordering::Relaxed);
    wait_until("both are out", || health(&service)[1].0 == "out");
    wait_until("both get requests", || {
        let bodies = bodies(2);
        bodies.contains(&"a".into()) && bodies.contains(&"b".into())
    });
    healthy.store(200, Ordering::Relaxed);
    status.store(200, Ordering::Relaxed);
    wait_until("both are up", || {
        health(&service)
            .iter()
            .all(|(health, reason)| health == "up" && reason.is_none())
    });
    service.wait_for_logs("an upstream is back", 2);
    let host = upstreams[0].url().replace("http://", "");
    let requests = upstreams[0].requests();
    let check = requests
        .iter()
        .find(|it| it.request_line().contains("healthz"));
    assert_eq!(check.unwrap().header("host"), [host]);
}

#[test]
fn requests_are_shared_by_weight() {
    let upstreams = ["blue", "green"].map(Upstream::with_body);
    let route = format!(
        "{{ id: all, upstreams: [ {{ url: \"{}\", weight: 3 }}, \"{}\" ] }}",
        upstreams[0].url(),
        upstreams[1].url()
    );
    let service = start(&[route], "");
    let mut http = client(&service);
    // One after the other, so that there is no load to balance.
    let mut blue = 0;
    for _ in 0..40 {
        let body = http.get("/").body;
        blue += usize::from(body == "blue");
        // A request counts until the next one begins on its connection.
    }
    assert!((28..=32).contains(&blue), "{blue}");
}

#[test]
fn a_route_has_timeouts_and_limits_of_its_own() {
    let slow = || {
        Upstream::start(|_, stream| {
            std::thread::sleep(Duration::from_millis(700));
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow")
                .is_ok()
        })
    };
    let upstreams = [slow(), slow()];
    let service = start(
        &[
            route(
                "short",
                "match: { path: [/short] }, timeouts: { request: 100ms }, limits: { body_bytes: 4 },",
                &[&upstreams[0]],
            ),
            route("rest", "", &[&upstreams[1]]),
        ],
        "",
    );
    for headers in [&[][..], &HYPER] {
        let mut http = client(&service);
        assert_problem(&http.request("GET", "/short", headers, ""), 504);
        assert_eq!(http.request("GET", "/long", headers, "").body, "slow");
        assert_problem(&http.request("POST", "/short", headers, "12345"), 413);
        assert_eq!(http.request("POST", "/long", headers, "12345").status, 200);
    }
    // The length is not declared.
    let mut http = client(&service);
    let chunked = "POST /short HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n";
    http.send_raw(chunked.as_bytes()).unwrap();
    assert_problem(&http.read_answer(false).unwrap(), 413);
}

#[test]
fn an_upstream_may_have_authorities_of_its_own() {
    let certificates = Certificates::generate();
    let dir = Dir::new();
    fs::copy(certificates.server_cert(), dir.path("tls.crt")).unwrap();
    fs::copy(certificates.server_key(), dir.path("tls.key")).unwrap();
    let upstream = Service::start_in(
        dir,
        &["gateway"],
        "gateway: { routes: [ { id: r, upstreams: [echo] } ], tls: { cert: tls.crt, key: tls.key } }\n",
    );
    let port = upstream.address("gateway").port();
    let dir = Dir::new();
    dir.write("own.pem", fs::read(certificates.ca()).unwrap());
    dir.write(
        "other.pem",
        fs::read(Certificates::generate().ca()).unwrap(),
    );
    let to = |id: &str, ca: &str| {
        format!(
            "{{ id: {id}, match: {{ path: [/{id}] }}, upstreams: [ {{ url: \"https://localhost:{port}\", ca: {ca} }} ] }}"
        )
    };
    let routes = format!("[ {}, {} ]", to("own", "own.pem"), to("other", "other.pem"));
    let service = Service::start_in(
        dir,
        &["gateway"],
        &format!("gateway: {{ routes: {routes} }}\n"),
    );
    let mut http = client(&service);
    assert_eq!(http.get("/own").status, 200);
    assert_problem(&http.get("/other"), 502);
}
