//! Which failures eject an upstream, and which do not.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use fluxgate_testkit::{timed, wait_until};

use super::*;

/// A header that sends a request through hyper instead of the fast path.
const HYPER: [(&str, &str); 1] = [("TE", "trailers")];

/// Starts an upstream that responds with its name. To `/fail` it sends `failure` and
/// closes the connection.
fn named(name: &'static str, failure: &'static str) -> Upstream {
    Upstream::start(move |request, stream| {
        if request.request_line().contains("/fail") {
            stream.write_all(failure.as_bytes()).unwrap();
            return false;
        }
        let length = name.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}"
        )
        .is_ok()
    })
}

/// Returns whether consecutive requests still go to both upstreams.
#[track_caller]
fn both_are_used(http: &mut Http) -> bool {
    let bodies = bodies_of_six(http).unwrap();
    bodies.iter().any(|it| *it != bodies[0])
}

/// Sends six requests. Returns the bodies of the responses, or the first response that is not
/// a success.
fn bodies_of_six(http: &mut Http) -> Result<Vec<String>, Answer> {
    let responses = (0..6).map(|_| http.request("GET", "/", &HYPER, ""));
    responses
        .map(|it| {
            if it.status == 200 {
                Ok(it.body)
            } else {
                Err(it)
            }
        })
        .collect()
}

/// Returns whether a request that fails ejects its upstream. If `is_reused`, it is sent
/// on an idle connection.
fn is_ejected_by(method: &str, failure: &'static str, is_reused: bool) -> bool {
    let body = if method == "POST" { "x" } else { "" };
    loop {
        let upstreams = [named("a", failure), named("b", failure)];
        let service = gateway_to(&[&upstreams[0], &upstreams[1]], "");
        let mut http = client(&service);
        if is_reused {
            wait_until("both have an idle connection", || {
                http.request("GET", "/", &HYPER, "");
                upstreams.iter().all(|it| !it.requests().is_empty())
            });
        }
        let connections = || upstreams.iter().map(Upstream::connections).sum::<usize>();
        let before = connections();
        let ((was_reused, is_ejected), took) = timed(|| {
            assert_problem(&http.request(method, "/fail", &HYPER, body), 502);
            (connections() == before, !both_are_used(&mut http))
        });
        // On a busy machine, a connection may become idle only after its response has
        // been passed on, and the first ejection, of a second, may end before the last
        // request. Neither shows anything.
        if was_reused == is_reused && (is_ejected || took < Duration::from_secs(1)) {
            return is_ejected;
        }
    }
}

#[test]
fn an_idle_connection_that_closes_before_the_response_ejects_no_upstream() {
    let half = "HTTP/1.1 200 OK\r\nConte";
    for (is_reused, failure, is_healthy) in
        [(true, "", true), (true, half, false), (false, "", false)]
    {
        let is_ejected = is_ejected_by("POST", failure, is_reused);
        assert_eq!(is_ejected, !is_healthy, "{is_reused} {failure:?}");
    }
}

#[test]
fn an_invalid_response_ejects_its_upstream() {
    for failure in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nab",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    ] {
        assert!(is_ejected_by("GET", failure, false), "{failure:?}");
    }
}

#[test]
fn a_client_that_stops_sending_ejects_no_upstream() {
    loop {
        let upstreams = [named("a", ""), named("b", "")];
        let timeouts = "  timeouts: { request: 1s, idle: 1500ms }\n";
        let service = gateway_to(&[&upstreams[0], &upstreams[1]], timeouts);
        let clients = [(); 2].map(|()| {
            let mut slow = client(&service);
            slow.send_raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
                .unwrap();
            slow
        });
        for mut slow in clients {
            assert_problem(&slow.read_answer(false).unwrap(), 408);
        }
        let (bodies, took) = timed(|| bodies_of_six(&mut client(&service)));
        // On a busy machine, an upstream may not respond within a second, and an ejection may
        // end before the last request. Neither shows anything.
        if took < Duration::from_secs(1) {
            let bodies = bodies.expect("each request is answered in time");
            assert!(bodies.iter().any(|it| *it != bodies[0]), "{bodies:?}");
            return;
        }
    }
}

#[test]
fn the_response_timeout_starts_when_the_request_is_complete() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let upstream = Upstream::start(move |request, stream| {
        if request.request_line().contains("/never") {
            return released.lock().unwrap().recv().is_ok();
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .is_ok()
    });
    let service = gateway_to(&[&upstream], "  timeouts: { request: 1s, idle: 1h }\n");
    // Returns the status, and how long it took from the end of the request.
    let send = |target: &str| {
        let mut slow = client(&service);
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
        slow.send_raw(head.as_bytes()).unwrap();
        // The pause itself is under test.
        thread::sleep(Duration::from_millis(1_300));
        timed(|| {
            slow.send_raw(b"half").unwrap();
            slow.read_answer(false).unwrap().status
        })
    };
    loop {
        let (status, took) = send("/");
        // On a busy machine, the upstream may take longer than the timeout.
        if took < Duration::from_secs(1) {
            assert_eq!(status, 200);
            break;
        }
    }
    let (status, took) = send("/never");
    assert_eq!(status, 504);
    assert!(took >= Duration::from_secs(1), "{took:?}");
    drop(release);
}
