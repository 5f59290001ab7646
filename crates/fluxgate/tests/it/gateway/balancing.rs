//! Which of several upstreams a request goes to, and when it is sent to another.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use fluxgate_testkit::{ports, timed, wait_for, wait_until};

use super::*;

fn respond(stream: &mut TcpStream, body: &str) -> bool {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .is_ok()
}

/// Starts an upstream that responds to nothing until the sender is used or dropped.
fn slow_upstream() -> (Upstream, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let slow = Upstream::start(move |_, stream| {
        let _ = released.lock().unwrap().recv();
        respond(stream, "slow")
    });
    (slow, release)
}

/// Sends requests one after the other until the slow upstream has one of them, and that one
/// only: a request still counts for a moment after its response has been sent, but not when
/// the next one on its connection is forwarded.
fn occupy<'s>(
    scope: &'s thread::Scope<'s, '_>,
    service: &'s Service,
    path: &'s str,
    slow: &Upstream,
) {
    scope.spawn(move || {
        let mut http = client(service);
        while http.get(path).body != "slow" {}
    });
    wait_until("the slow upstream has a request", || {
        slow.requests().len() == 1
    });
}

#[test]
fn the_upstream_with_the_fewest_requests_gets_the_next() {
    let (slow, release) = slow_upstream();
    let fast = Upstream::with_body("fast");
    let service = gateway_to(&[&slow, &fast], "");
    thread::scope(|scope| {
        occupy(scope, &service, "/", &slow);
        let mut http = client(&service);
        for _ in 0..10 {
            assert_eq!(http.get("/").body, "fast");
        }
        assert_eq!(slow.requests().len(), 1);
        release.send(()).unwrap();
    });
    drop(release);
    wait_until("the slow upstream gets requests again", || {
        client(&service).get("/").body == "slow"
    });
}

#[test]
fn routes_with_the_same_upstream_share_its_request_count() {
    let (slow, release) = slow_upstream();
    let fast = Upstream::with_body("fast");
    let route_at = |id: &str| route(id, &format!("match: {{ path: [/{id}] }},"), &[&slow, &fast]);
    let service = start(&[route_at("a"), route_at("b")], "");
    thread::scope(|scope| {
        occupy(scope, &service, "/a", &slow);
        let mut http = client(&service);
        for _ in 0..10 {
            assert_eq!(http.get("/b").body, "fast");
        }
        release.send(()).unwrap();
    });
}

#[test]
fn an_unsent_request_goes_to_the_next_upstream_and_the_dead_one_is_ejected() {
    let port = ports::free();
    let dead = port.addr();
    let alive = Upstream::with_body("alive");
    let urls = format!("[\"http://{dead}\", \"{}\"]", alive.url());
    let service = start(&[format!("{{ id: r, upstreams: {urls} }}")], "");
    let mut http = client(&service);
    for number in 0..20 {
        let response = http.request("POST", "/", &[], &format!("body {number}"));
        assert_eq!((response.status, &*response.body), (200, "alive"));
    }
    let bodies: Vec<_> = alive
        .requests()
        .into_iter()
        .map(|request| request.body)
        .collect();
    let expected: Vec<_> = (0..20)
        .map(|number| format!("body {number}").into_bytes())
        .collect();
    assert_eq!(bodies, expected);

    // It comes back, is probed after its ejection, and gets its share again.
    let revived = Upstream::start_on(TcpListener::bind(dead).unwrap(), |_, stream| {
        respond(stream, "revived")
    });
    wait_until("it is probed", || http.get("/").body == "revived");
    let bodies: Vec<_> = (0..4).map(|_| http.get("/").body).collect();
    assert!(bodies.iter().any(|body| body == "revived"), "{bodies:?}");
    assert!(bodies.iter().any(|body| body == "alive"), "{bodies:?}");
    drop(revived);
}

#[test]
fn an_upstream_without_a_response_is_ejected_and_the_request_is_not_retried() {
    let bad = Upstream::start(|_, _| false);
    let good = Upstream::with_body("good");
    let service = gateway_to(&[&bad, &good], "");
    let mut http = client(&service);
    let (statuses, took) = timed(|| [(); 6].map(|()| http.request("POST", "/", &[], "x").status));
    let failed = statuses.iter().filter(|status| **status == 502).count();
    // It is probed once a second at most.
    let probes = usize::try_from(took.as_secs()).unwrap();
    assert!((1..=1 + probes).contains(&failed), "{statuses:?} {took:?}");
    assert_eq!(
        (bad.requests().len(), good.requests().len()),
        (failed, 6 - failed)
    );
}

/// Starts an upstream that closes the connection on its second request. The counter
/// holds the number of its requests.
fn closing_on_the_second_request() -> (Upstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let upstream = Upstream::start(move |_, stream| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        number != 1 && respond(stream, "ok")
    });
    (upstream, requests)
}

#[test]
fn a_request_that_may_have_been_sent_is_not_retried() {
    for method in ["GET", "POST"] {
        let (upstream, requests) = closing_on_the_second_request();
        let service = gateway_to(&[&upstream], "");
        let mut http = client(&service);
        assert_eq!(http.get("/1").status, 200);
        assert_problem(&http.request(method, "/2", &[], ""), 502);
        assert_eq!(requests.load(Ordering::Relaxed), 2, "{method}");
        assert_eq!(http.request("POST", "/3", &[], "x").status, 200);
        assert_eq!(upstream.connections(), 2);
    }
}

#[test]
fn connections_are_reused_and_closed_ones_replaced() {
    let upstream = Upstream::with_body("ok");
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    for _ in 0..10 {
        assert_eq!(http.request("POST", "/", &[], "x").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
    upstream.close_connections();
    wait_until("a request is forwarded", || http.get("/").status == 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn idle_connections_to_upstreams_are_closed() {
    let upstream = Upstream::with_body("ok");
    let service = gateway_to(&[&upstream], "  timeouts: { idle: 300ms }\n");
    assert_eq!(client(&service).get("/").status, 200);
    wait_for("a new connection for the next request", || {
        client(&service).get("/");
        thread::sleep(std::time::Duration::from_millis(350));
        (upstream.connections() >= 3).then_some(())
    });
}
