//! Requests that wait in the gateway, over real connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, now, timed, wait_until};

use super::{OK, client, config, ok_upstream};
use crate::service::Service;

fn start_with_waiting(upstream: std::net::SocketAddr, rule: &str) -> Service {
    let config = config(&[upstream], "main", "");
    let more = format!(
        "filters: {{ main: {{ rule_set: api }} }}\nrule_sets:\n  api:\n    rules:\n      \
         - {{ id: r, scope: per_user, on_exceed: wait, {rule} }}\n"
    );
    Service::start(&["gateway"], &format!("{config}{more}"))
}

/// Sends a request over a new connection and does not wait for the response.
fn send(service: &Service, path: &str) -> RawClient {
    let mut client = client(service);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nX-User-Id: u\r\n\r\n"
    ));
    client
}

/// Returns the sum of a metric over all its labels.
fn metric(service: &Service, name: &str) -> u64 {
    let text = service.http().get("/metrics").body;
    let lines = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{']))
    });
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// Returns the hours until the user's bucket is full again, rounded up.
fn hours_until_full(service: &Service) -> u64 {
    let state = service
        .http()
        .get("/v1/state?rule_set=api&rule=r&identity=u");
    let state: serde_json::Value = serde_json::from_str(&state.body).unwrap();
    let millis = state["bands"][0]["reset_after_ms"].as_u64().unwrap();
    millis.div_ceil(3_600_000)
}

/// No request is forwarded before its time, and times are assigned in order of arrival. On
/// a busy machine, requests may be forwarded late and out of order.
#[test]
fn fifty_requests_over_the_rate_are_served_in_order_at_the_rate() {
    const INTERVAL: Duration = Duration::from_millis(60);
    let served = Arc::new(Mutex::new(BTreeMap::new()));
    let start = now();
    let upstream = {
        let served = Arc::clone(&served);
        RawUpstream::start(move |connection| {
            while let Some(request) = connection.read_request() {
                served
                    .lock()
                    .unwrap()
                    .insert(request.target, start.elapsed());
                connection.send(OK);
            }
        })
    };
    let rule = "max_wait: 1m, bands: [ { capacity: 1, window: 60ms } ]";
    let service = start_with_waiting(upstream.address(), rule);
    let first = start.elapsed();
    let (mut clients, mut decided) = (Vec::new(), Vec::new());
    for n in 0..51 {
        clients.push(send(&service, &format!("/{n}")));
        // Its place is assigned before the next request.
        wait_until("it is decided", || {
            metric(&service, "fluxgate_decisions_total") > n
        });
        decided.push(start.elapsed());
    }
    for client in &mut clients {
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    let served = served.lock().unwrap();
    assert_eq!(served.len(), 51);
    for (n, decided) in (0..).zip(decided) {
        let due = first + n * INTERVAL;
        let at = served[&format!("/{n}")];
        // Allows for a busy machine, on which the request itself may come after its time.
        let bounds = due..due.max(decided) + Duration::from_secs(20);
        assert!(bounds.contains(&at), "{n}: due {due:?}, served {at:?}");
    }
    assert_eq!(metric(&service, "fluxgate_waiting"), 0);
}

#[test]
fn the_request_after_a_hundred_waiting_ones_is_denied_at_once() {
    let upstream = ok_upstream();
    let service = start_with_waiting(
        upstream.address(),
        "max_wait: 10d, bands: [ { capacity: 1, window: 1h } ]",
    );
    assert_eq!(send(&service, "/first").read_answer().unwrap().status, 200);
    let mut waiting: Vec<_> = (0..99).map(|n| send(&service, &format!("/{n}"))).collect();
    wait_until("all but one wait", || {
        metric(&service, "fluxgate_waiting") == 99
    });
    // Connections are served in any order. The one that will leave must be the last in the queue,
    // for only the last gets its units back.
    waiting.push(send(&service, "/99"));
    wait_until("all of them wait", || {
        metric(&service, "fluxgate_waiting") == 100
    });
    for _ in 0..3 {
        let (response, took) = timed(|| send(&service, "/beyond").read_answer().unwrap());
        assert_eq!(response.status, 429);
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
    // Denied requests use no units: 101 hours for the first and the waiting ones.
    assert_eq!(hours_until_full(&service), 101);
    // A client that disconnects frees its place and its units.
    drop(waiting.pop());
    wait_until("it no longer waits", || {
        metric(&service, "fluxgate_waiting") == 99
    });
    wait_until("its units are refunded", || {
        hours_until_full(&service) == 100
    });
    waiting.push(send(&service, "/again"));
    wait_until("another request has its place", || {
        metric(&service, "fluxgate_waiting") == 100
    });
    // No waiting request was forwarded.
    let lines: Vec<_> = upstream.requests().iter().map(|it| it.line()).collect();
    assert_eq!(lines, ["GET /first"]);
}

#[test]
fn a_request_that_would_wait_too_long_is_denied_at_once() {
    let upstream = ok_upstream();
    let service = start_with_waiting(
        upstream.address(),
        "max_wait: 90m, bands: [ { capacity: 1, window: 1h } ]",
    );
    assert_eq!(send(&service, "/0").read_answer().unwrap().status, 200);
    let _waiting = send(&service, "/1");
    wait_until("one waits", || metric(&service, "fluxgate_waiting") == 1);
    let (response, took) = timed(|| send(&service, "/2").read_answer().unwrap());
    assert_eq!(response.status, 429);
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_client_that_disconnects_gets_its_units_back() {
    let upstream = ok_upstream();
    let service = start_with_waiting(
        upstream.address(),
        "max_wait: 10d, bands: [ { capacity: 1, window: 1h } ]",
    );
    let mut first = send(&service, "/0");
    assert_eq!(first.read_answer().unwrap().status, 200);
    for round in 0..6 {
        // Over a new connection, and over a reused one.
        let mut waiting = match round % 2 {
            0 => send(&service, "/waits"),
            _ => {
                let mut client = client(&service);
                client.send(format!(
                    "GET /x HTTP/1.1\r\nHost: a\r\nX-User-Id: other{round}\r\n\r\n"
                ));
                assert_eq!(client.read_answer().unwrap().status, 200);
                client.send("GET /waits HTTP/1.1\r\nHost: a\r\nX-User-Id: u\r\n\r\n");
                client
            }
        };
        wait_until("it waits", || metric(&service, "fluxgate_waiting") == 1);
        assert_eq!(hours_until_full(&service), 2);
        // A pipelined request must not hide the disconnect.
        if round > 3 {
            waiting.send("GET /waits HTTP/1.1\r\nHost: a\r\nX-User-Id: u\r\n\r\n");
        }
        drop(waiting);
        wait_until("it no longer waits", || {
            metric(&service, "fluxgate_waiting") == 0
        });
        wait_until("its units are refunded", || hours_until_full(&service) == 1);
    }
    assert!(upstream.requests().iter().all(|it| it.target != "/waits"));
}

#[test]
fn a_request_that_waits_during_the_shutdown_is_served() {
    let upstream = ok_upstream();
    let service = start_with_waiting(
        upstream.address(),
        // Long enough to see the request wait, and shorter than the grace period.
        "max_wait: 1m, bands: [ { capacity: 1, window: 12s } ]",
    );
    assert_eq!(send(&service, "/0").read_answer().unwrap().status, 200);
    let mut waiting = send(&service, "/waits");
    wait_until("it waits", || metric(&service, "fluxgate_waiting") == 1);
    service.program.signal("TERM");
    assert_eq!(waiting.read_answer().unwrap().status, 200);
    assert_eq!(service.program.wait().code(), Some(0));
}
