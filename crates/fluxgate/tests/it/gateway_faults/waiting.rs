//! Waiting at the gateway, on real connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, now, timed, wait_until};

use super::{OK, client, config, ok_upstream};
use crate::service::Service;

fn start_waiting(upstream: std::net::SocketAddr, rule: &str) -> Service {
    let config = config(&[upstream], "main", "");
    let more = format!(
        "filters: {{ main: {{ rule_set: api }} }}\nrule_sets:\n  api:\n    rules:\n      \
         - {{ id: r, scope: per_user, on_exceed: wait, {rule} }}\n"
    );
    Service::start(&["gateway"], &format!("{config}{more}"))
}

/// Asks for a path on a connection of its own and does not wait for the answer.
fn ask(service: &Service, path: &str) -> RawClient {
    let mut client = client(service);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nX-User-Id: u\r\n\r\n"
    ));
    client
}

/// The sum of a metric over all its labels.
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

/// When the user's bucket is full again, in milliseconds.
fn full_in(service: &Service) -> u64 {
    let state = service
        .http()
        .get("/v1/state?rule_set=api&rule=r&identity=u");
    let state: serde_json::Value = serde_json::from_str(&state.body).unwrap();
    state["bands"][0]["reset_after_ms"].as_u64().unwrap()
}

/// Nobody is served before his time, and times are given in the order of coming.
/// Who is served late, by a machine that is busy, may meet the next.
#[test]
fn fifty_beyond_the_rate_are_served_in_order_at_the_rate() {
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
    let service = start_waiting(upstream.address(), rule);
    let first = start.elapsed();
    let mut clients = Vec::new();
    for n in 0..51 {
        clients.push(ask(&service, &format!("/{n}")));
        // Its place is taken before the next comes.
        wait_until("it is decided", || {
            metric(&service, "fluxgate_decisions_total") > n
        });
    }
    for client in &mut clients {
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    let served = served.lock().unwrap();
    assert_eq!(served.len(), 51);
    for n in 0..51 {
        let due = first + n * INTERVAL;
        let at = served[&format!("/{n}")];
        // Some time for a busy machine.
        let bounds = due..due + Duration::from_secs(5);
        assert!(bounds.contains(&at), "{n}: due {due:?}, served {at:?}");
    }
    assert_eq!(metric(&service, "fluxgate_waiting"), 0);
}

#[test]
fn the_hundred_and_first_is_refused_at_once() {
    let upstream = ok_upstream();
    let service = start_waiting(
        upstream.address(),
        "max_wait: 10d, bands: [ { capacity: 1, window: 1h } ]",
    );
    assert_eq!(ask(&service, "/first").read_answer().unwrap().status, 200);
    let mut waiting: Vec<_> = (0..99).map(|n| ask(&service, &format!("/{n}"))).collect();
    wait_until("all but one wait", || {
        metric(&service, "fluxgate_waiting") == 99
    });
    // Connections are served in any order. The one that will leave must be the last in the queue,
    // for only the last gets its units back.
    waiting.push(ask(&service, "/99"));
    wait_until("all of them wait", || {
        metric(&service, "fluxgate_waiting") == 100
    });
    for _ in 0..3 {
        let (answer, took) = timed(|| ask(&service, "/beyond").read_answer().unwrap());
        assert_eq!(answer.status, 429);
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    // What was refused has taken nothing: a hundred and one hours in all.
    let hours = full_in(&service).div_ceil(3_600_000);
    assert_eq!(hours, 101);
    // A place that is left is another's, and so are the units.
    drop(waiting.pop());
    wait_until("he has left", || metric(&service, "fluxgate_waiting") == 99);
    wait_until("his units are back", || {
        full_in(&service).div_ceil(3_600_000) == 100
    });
    waiting.push(ask(&service, "/again"));
    wait_until("another has his place", || {
        metric(&service, "fluxgate_waiting") == 100
    });
    // Nobody who waits has been forwarded.
    let lines: Vec<_> = upstream.requests().iter().map(|it| it.line()).collect();
    assert_eq!(lines, ["GET /first"]);
}

#[test]
fn who_would_wait_too_long_is_refused_at_once() {
    let upstream = ok_upstream();
    let service = start_waiting(
        upstream.address(),
        "max_wait: 90m, bands: [ { capacity: 1, window: 1h } ]",
    );
    assert_eq!(ask(&service, "/0").read_answer().unwrap().status, 200);
    let _waits = ask(&service, "/1");
    wait_until("one waits", || metric(&service, "fluxgate_waiting") == 1);
    let (answer, took) = timed(|| ask(&service, "/2").read_answer().unwrap());
    assert_eq!(answer.status, 429);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn who_hangs_up_gives_back_what_he_took() {
    let upstream = ok_upstream();
    let service = start_waiting(
        upstream.address(),
        "max_wait: 10d, bands: [ { capacity: 1, window: 1h } ]",
    );
    let mut kept = ask(&service, "/0");
    assert_eq!(kept.read_answer().unwrap().status, 200);
    for round in 0..6 {
        // On a new connection, and on one that has served before.
        let mut waits = match round % 2 {
            0 => ask(&service, "/waits"),
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
        wait_until("he waits", || metric(&service, "fluxgate_waiting") == 1);
        assert_eq!(full_in(&service).div_ceil(3_600_000), 2);
        // Who has said more meanwhile may go, too.
        if round > 3 {
            waits.send("GET /waits HTTP/1.1\r\nHost: a\r\nX-User-Id: u\r\n\r\n");
        }
        drop(waits);
        wait_until("he has left", || metric(&service, "fluxgate_waiting") == 0);
        wait_until("his units are back", || {
            full_in(&service).div_ceil(3_600_000) == 1
        });
    }
    assert!(upstream.requests().iter().all(|it| it.target != "/waits"));
}

/// One who waits when the service is told to end is served.
#[test]
fn who_waits_when_it_ends_is_served() {
    let upstream = ok_upstream();
    let service = start_waiting(
        upstream.address(),
        "max_wait: 1m, bands: [ { capacity: 1, window: 3s } ]",
    );
    assert_eq!(ask(&service, "/0").read_answer().unwrap().status, 200);
    let mut waits = ask(&service, "/waits");
    wait_until("he waits", || metric(&service, "fluxgate_waiting") == 1);
    service.program.signal("TERM");
    assert_eq!(waits.read_answer().unwrap().status, 200);
    assert_eq!(service.program.wait().code(), Some(0));
}
