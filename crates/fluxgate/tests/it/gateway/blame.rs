//! Whose fault it is that a request is not answered, and who is put aside for it.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use fluxgate_testkit::wait_until;

use super::*;

/// With it a request is not plain, and goes the long way.
const LONG_WAY: [(&str, &str); 1] = [("TE", "trailers")];

/// An upstream that answers with its name, and `/fail` with this and an end.
fn named(name: &'static str, failing: &'static str) -> Upstream {
    Upstream::start(move |seen, stream| {
        if seen.line().contains("/fail") {
            stream.write_all(failing.as_bytes()).unwrap();
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

/// Whether requests that follow each other still go to both upstreams.
#[track_caller]
fn both_are_asked(http: &mut Http) -> bool {
    let answers: Vec<_> = (0..6)
        .map(|_| http.request("GET", "/", &LONG_WAY, ""))
        .collect();
    assert!(answers.iter().all(|it| it.status == 200), "{answers:?}");
    answers.iter().any(|it| it.body != answers[0].body)
}

#[test]
fn a_kept_connection_that_is_closed_before_an_answer_puts_nobody_aside() {
    let half = "HTTP/1.1 200 OK\r\nConte";
    for (is_kept, failing, is_well) in [(true, "", true), (true, half, false), (false, "", false)] {
        let upstreams = [named("a", failing), named("b", failing)];
        let service = before(&[&upstreams[0], &upstreams[1]], "");
        let mut http = client(&service);
        if is_kept {
            wait_until("both have been asked", || {
                http.request("GET", "/", &LONG_WAY, "");
                upstreams.iter().all(|it| !it.seen().is_empty())
            });
        }
        assert_problem(&http.request("POST", "/fail", &LONG_WAY, "x"), 502);
        assert_eq!(both_are_asked(&mut http), is_well, "{is_kept} {failing:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_passed_on_puts_aside() {
    for failing in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nab",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    ] {
        let upstreams = [named("a", failing), named("b", failing)];
        let service = before(&[&upstreams[0], &upstreams[1]], "");
        let mut http = client(&service);
        assert_problem(&http.request("GET", "/fail", &LONG_WAY, ""), 502);
        assert!(!both_are_asked(&mut http), "{failing:?}");
    }
}

#[test]
fn a_client_that_stops_sending_is_to_blame_and_no_upstream() {
    let upstreams = [named("a", ""), named("b", "")];
    let times = "  timeouts: { request: 200ms, idle: 700ms }\n";
    let service = before(&[&upstreams[0], &upstreams[1]], times);
    for _ in 0..2 {
        let mut slow = client(&service);
        slow.send_raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
            .unwrap();
        assert_problem(&slow.read_answer(false).unwrap(), 408);
    }
    assert!(both_are_asked(&mut client(&service)));
}

#[test]
fn the_time_of_an_upstream_begins_when_it_has_everything() {
    let (held, release) = std::sync::mpsc::channel::<()>();
    let release = std::sync::Mutex::new(release);
    let upstream = Upstream::start(move |seen, stream| {
        if seen.line().contains("/never") {
            return release.lock().unwrap().recv().is_ok();
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .is_ok()
    });
    let service = before(&[&upstream], "  timeouts: { request: 200ms, idle: 1h }\n");
    for (target, status) in [("/", 200), ("/never", 504)] {
        let mut slow = client(&service);
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
        slow.send_raw(head.as_bytes()).unwrap();
        // It is the pause itself that is tested.
        thread::sleep(Duration::from_millis(600));
        slow.send_raw(b"half").unwrap();
        assert_eq!(slow.read_answer(false).unwrap().status, status, "{target}");
    }
    drop(held);
}
