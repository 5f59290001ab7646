//! Proxies that stay in front and ask.

use std::fs;

use fluxgate_testkit::{Answer, RawUpstream, wait_until};

use super::front::{Front, Proxy, for_tests};
use super::{put, service, text};
use crate::service::Service;
use crate::support::Dir;

/// Halts the service. The signal is not yet obeyed when it has been sent.
fn stop(service: &Service) {
    service.program.signal("STOP");
    let tasks = format!("/proc/{}/task", service.program.id());
    wait_until("the service stands still", || {
        let mut tasks = fs::read_dir(&tasks).unwrap();
        tasks.all(|task| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            let (_, rest) = stat.rsplit_once(") ").unwrap();
            rest.starts_with('T')
        })
    });
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

/// A service and a proxy that asks it.
fn start(proxy: Proxy) -> (Service, Front) {
    let service = service();
    let front = Front::start(proxy, service.address("api"), for_tests);
    (service, front)
}

/// What holds for all of them.
fn limits(proxy: Proxy) -> (Service, Front) {
    let (service, front) = start(proxy);
    let answers: Vec<_> = (0..5).map(|_| front.post("ann")).collect();
    assert_eq!(statuses(&answers), [200, 200, 200, 429, 429]);
    // Whatever is asked, the app gets the request as it was, and what was refused
    // it does not get.
    let seen = front.seen("/api/x?y=1");
    assert_eq!(seen.len(), 3);
    for (request, answer) in seen.iter().zip(&answers) {
        assert_eq!((&*request.method, &*request.body), ("POST", &b"body"[..]));
        assert_eq!(request.values("cookie"), ["secret"]);
        assert_eq!(request.values("authorization"), ["secret"]);
        assert_eq!(answer.body, "hello");
    }
    for refused in &answers[3..] {
        let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=1200).contains(&retry), "{retry}");
        let kind = refused.header("content-type");
        assert_eq!(kind, Some("application/problem+json"));
        let policy = refused.header("ratelimit-policy");
        assert_eq!(policy, Some(r#""per-user/burst";q=3;w=3600"#));
        let body: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(body["status"], 429);
        let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
        assert_eq!(body["type"], kind);
        assert_eq!(body["title"], "The quota for these requests is used up");
    }
    assert_eq!(front.post("bob").status, 200);
    // Whoever says no user counts by the address that the proxy sees.
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
    asks_by_the_head_alone(proxy);
    (service, front)
}

/// The question has what the rules ask about, and nothing that is nobody's
/// business or would have to be followed by a body.
fn asks_by_the_head_alone(proxy: Proxy) {
    let asked = RawUpstream::answering(*b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let front = Front::start(proxy, asked.address(), for_tests);
    for _ in 0..3 {
        assert_eq!(front.post("ann").status, 200);
    }
    let mut questions = asked.requests();
    questions.retain(|question| question.values("x-forwarded-uri") != ["/health"]);
    assert_eq!(questions.len(), 3);
    for question in questions {
        assert_eq!(question.method, "GET");
        let target = question.target.as_str();
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
            assert_eq!(question.values(name), expected, "{name}");
        }
        let lengths = question.values("content-length");
        assert!(lengths.iter().all(|length| *length == "0"), "{lengths:?}");
    }
}

/// Those who pass are told how much is left.
fn tells_who_passes(front: &Front) {
    let answer = front.post("cid");
    let told = answer.header("ratelimit").unwrap();
    assert!(told.starts_with(r#""per-user/burst";r=2;t="#), "{told}");
    assert!(answer.header("ratelimit-policy").is_some());
}

/// A path that somebody might read as another is not served.
fn dots_are_refused(front: &Front) {
    let answer = front.client().get("/health/../api/y");
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = front.client().get("/health/%2e%2e/api/y");
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[test]
fn nginx_lets_pass_what_fluxgate_allows() {
    let (_service, front) = limits(Proxy::Nginx);
    tells_who_passes(&front);
    dots_are_refused(&front);
}

/// It fails open, but not for requests that only FluxGate does not take.
#[test]
fn nginx_goes_on_without_fluxgate() {
    let (service, front) = start(Proxy::Nginx);
    stop(&service);
    assert_eq!(front.post("ann").status, 200);
    service.program.kill();
    let answers: Vec<_> = (0..5).map(|_| front.post("ann")).collect();
    assert_eq!(statuses(&answers), [200; 5]);
    assert_eq!(answers[0].body, "hello");
}

#[test]
fn nginx_fails_closed_if_it_is_told_to() {
    let service = service();
    let front = Front::start(Proxy::Nginx, service.address("api"), |name, text| {
        let text = for_tests(name, text);
        if name != "fluxgate.conf" {
            return text;
        }
        let (start, decides) = text.split_once("    location @not_decided {").unwrap();
        let decides = put(decides, "proxy_pass http://app;", "return 503;");
        format!("{start}    location @not_decided {{{decides}")
    });
    assert_eq!(front.post("ann").status, 200);
    service.program.kill();
    assert_eq!(front.post("ann").status, 503);
    assert_eq!(front.seen("/api/x?y=1").len(), 1);
}

#[test]
fn caddy_lets_pass_what_fluxgate_allows() {
    let (_service, front) = limits(Proxy::Caddy);
    tells_who_passes(&front);
    dots_are_refused(&front);
}

#[test]
fn caddy_fails_closed() {
    let (service, front) = start(Proxy::Caddy);
    stop(&service);
    let answer = front.post("ann");
    let said = service.program.lines();
    assert_eq!(answer.status, 504, "{answer:?}, {said:#?}");
    service.program.kill();
    assert_eq!(front.post("ann").status, 502);
    assert!(front.seen("/api/x?y=1").is_empty());
}

#[test]
fn traefik_lets_pass_what_fluxgate_allows() {
    let (_service, front) = limits(Proxy::Traefik);
    // It resolves dots itself before it asks, and the app gets what was asked about.
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

/// FluxGate answers, its store is gone, and the rules refuse then: no proxy takes that for
/// an error on which it lets pass, nor for a used-up quota.
#[test]
fn every_proxy_answers_503_where_fluxgate_fails_closed() {
    let gone = fluxgate_testkit::ports::free();
    let config = text("fluxgate.yaml");
    let listen = config.lines().find(|line| line.starts_with("listen:"));
    let store = format!("store: {{ redis: {{ url: 'redis://{}' }} }}\n", gone.addr());
    let config = put(&config, listen.unwrap(), "listen: { api: '127.0.0.1:0' }");
    let config = put(&config, "    rules:", "    on_error: deny\n    rules:");
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
