//! Proxies that call FluxGate for each request.

use std::fs;

use fluxgate_testkit::{Answer, RawUpstream, wait_until};

use super::front::{Front, Proxy, for_tests};
use super::{replace, service, text};
use crate::service::Service;
use crate::support::Dir;

/// Stops the service. The signal takes effect only some time after it is sent.
fn stop(service: &Service) {
    service.program.signal("STOP");
    let tasks = format!("/proc/{}/task", service.program.id());
    wait_until("the service is stopped", || {
        let mut tasks = fs::read_dir(&tasks).unwrap();
        tasks.all(|task| {
            // The thread may have ended since it was listed.
            let stat = fs::read_to_string(task.unwrap().path().join("stat"));
            stat.is_ok_and(|stat| {
                let (_, rest) = stat.rsplit_once(") ").unwrap();
                rest.starts_with('T')
            })
        })
    });
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

/// Starts a service and a proxy that calls it.
fn start(proxy: Proxy) -> (Service, Front) {
    let service = service();
    let front = Front::start(proxy, service.address("api"), for_tests);
    (service, front)
}

/// Checks what all proxies have in common.
fn check_limits(proxy: Proxy) -> (Service, Front) {
    let (service, front) = start(proxy);
    let answers: Vec<_> = (0..5).map(|_| front.post("ann")).collect();
    assert_eq!(statuses(&answers), [200, 200, 200, 429, 429]);
    // The app receives allowed requests unchanged, and no others.
    let seen = front.seen("/api/x?y=1");
    assert_eq!(seen.len(), 3);
    for (request, answer) in seen.iter().zip(&answers) {
        assert_eq!((&*request.method, &*request.body), ("POST", &b"body"[..]));
        assert_eq!(request.values("cookie"), ["secret"]);
        assert_eq!(request.values("authorization"), ["secret"]);
        assert_eq!(answer.body, "hello");
    }
    for denied in &answers[3..] {
        let retry: u64 = denied.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=1200).contains(&retry), "{retry}");
        let kind = denied.header("content-type");
        assert_eq!(kind, Some("application/problem+json"));
        let policy = denied.header("ratelimit-policy");
        assert_eq!(policy, Some(r#""per-user/burst";q=3;w=3600"#));
        let body: serde_json::Value = serde_json::from_str(&denied.body).unwrap();
        assert_eq!(body["status"], 429);
        let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
        assert_eq!(body["type"], kind);
        assert_eq!(body["title"], "The quota for these requests is used up");
    }
    assert_eq!(front.post("bob").status, 200);
    // Requests without a user count by the address of the peer.
    let spoofed: Vec<_> = (1..=4)
        .map(|last| {
            let address = format!("192.0.2.{last}");
            let headers = [
                ("X-Forwarded-For", &*address),
                ("X-Real-IP", &address),
                ("X-Forwarded-Uri", "/health"),
                ("X-Forwarded-Method", "PUT"),
            ];
            front.client().request("GET", "/", &headers, "")
        })
        .collect();
    assert_eq!(statuses(&spoofed), [200, 200, 200, 429]);
    let excluded: Vec<_> = (0..4).map(|_| front.client().get("/health")).collect();
    assert_eq!(statuses(&excluded), [200; 4]);
    assert_eq!(excluded[0].header("ratelimit"), None);
    check_forwarded_fields(proxy);
    (service, front)
}

/// Checks that the proxy sends FluxGate the fields that rules need, and neither credentials
/// nor a body.
fn check_forwarded_fields(proxy: Proxy) {
    let fluxgate = RawUpstream::answering(*b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let front = Front::start(proxy, fluxgate.address(), for_tests);
    for _ in 0..3 {
        assert_eq!(front.post("ann").status, 200);
    }
    let mut calls = fluxgate.requests();
    calls.retain(|call| call.values("x-forwarded-uri") != ["/health"]);
    assert_eq!(calls.len(), 3);
    for call in calls {
        assert_eq!(call.method, "GET");
        let target = call.target.as_str();
        assert!(
            target.starts_with("/v1/forward_auth?filter=main"),
            "{target}"
        );
        for (name, expected) in [
            ("x-forwarded-method", &["POST"][..]),
            ("x-forwarded-uri", &["/api/x?y=1"]),
            ("x-forwarded-for", &["127.0.0.1"]),
            ("x-user-id", &["ann"]),
            ("cookie", &[]),
            ("authorization", &[]),
            ("transfer-encoding", &[]),
        ] {
            assert_eq!(call.values(name), expected, "{name}");
        }
        let lengths = call.values("content-length");
        assert!(lengths.iter().all(|length| *length == "0"), "{lengths:?}");
    }
}

/// Checks that allowed responses have the `RateLimit` headers.
fn check_headers(front: &Front) {
    let answer = front.post("cid");
    let limit = answer.header("ratelimit").unwrap();
    assert!(limit.starts_with(r#""per-user/burst";r=2;t="#), "{limit}");
    assert!(answer.header("ratelimit-policy").is_some());
}

/// Checks that ambiguous paths are refused.
fn check_dots(front: &Front) {
    let answer = front.client().get("/health/../api/y");
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = front.client().get("/health/%2e%2e/api/y");
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[test]
fn nginx_forwards_allowed_requests() {
    let (_service, front) = check_limits(Proxy::Nginx);
    check_headers(&front);
    check_dots(&front);
}

#[test]
fn nginx_fails_open_without_fluxgate() {
    let (service, front) = start(Proxy::Nginx);
    stop(&service);
    assert_eq!(front.post("ann").status, 200);
    service.program.kill();
    let answers: Vec<_> = (0..5).map(|_| front.post("ann")).collect();
    assert_eq!(statuses(&answers), [200; 5]);
    assert_eq!(answers[0].body, "hello");
}

#[test]
fn nginx_fails_closed_if_configured() {
    let service = service();
    let front = Front::start(Proxy::Nginx, service.address("api"), |name, text| {
        let text = for_tests(name, text);
        if name != "fluxgate.conf" {
            return text;
        }
        let (start, decides) = text.split_once("    location @not_decided {").unwrap();
        let decides = replace(decides, "proxy_pass http://app;", "return 503;");
        format!("{start}    location @not_decided {{{decides}")
    });
    assert_eq!(front.post("ann").status, 200);
    service.program.kill();
    assert_eq!(front.post("ann").status, 503);
    assert_eq!(front.seen("/api/x?y=1").len(), 1);
}

#[test]
fn caddy_forwards_allowed_requests() {
    let (_service, front) = check_limits(Proxy::Caddy);
    check_headers(&front);
    check_dots(&front);
}

#[test]
fn caddy_fails_closed() {
    let (service, front) = start(Proxy::Caddy);
    stop(&service);
    let answer = front.post("ann");
    let lines = service.program.lines();
    assert_eq!(answer.status, 504, "{answer:?}, {lines:#?}");
    service.program.kill();
    assert_eq!(front.post("ann").status, 502);
    assert!(front.seen("/api/x?y=1").is_empty());
}

#[test]
fn traefik_forwards_allowed_requests() {
    let (_service, front) = check_limits(Proxy::Traefik);
    // Traefik resolves dots before it calls FluxGate, and forwards the resolved path.
    let answer = front.client().get("/health/../api/y");
    assert_eq!(answer.status, 429, "{answer:?}");
    assert!(front.seen("/api/y").is_empty());
}

#[test]
fn traefik_fails_closed() {
    let (service, front) = start(Proxy::Traefik);
    service.program.kill();
    assert_eq!(front.post("ann").status, 500);
    assert!(front.seen("/api/x?y=1").is_empty());
}

/// The store is down and the rules deny then: proxies take that neither for an error to fail
/// open on nor for an exceeded quota.
#[test]
fn every_proxy_answers_503_if_fluxgate_fails_closed() {
    let gone = fluxgate_testkit::ports::free();
    let config = text("fluxgate.yaml");
    let listen = config.lines().find(|line| line.starts_with("listen:"));
    let store = format!("store: {{ redis: {{ url: 'redis://{}' }} }}\n", gone.addr());
    let config = replace(&config, listen.unwrap(), "listen: { api: '127.0.0.1:0' }");
    let config = replace(&config, "    rules:", "    on_error: deny\n    rules:");
    let dir = Dir::new();
    dir.write("fluxgate.yaml", store + &config);
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    for proxy in [Proxy::Nginx, Proxy::Caddy, Proxy::Traefik] {
        let front = Front::start(proxy, service.address("api"), for_tests);
        let answer = front.post("ann");
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
        assert_eq!(
            (&body["type"], &body["outcome"]),
            (&kind.into(), &"failed_closed".into())
        );
        assert!(front.seen("/api/x?y=1").is_empty());
    }
}
