//! Which of several upstreams gets a request, and which gets it again.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use fluxgate_testkit::{wait_for, wait_until};

use super::*;

fn say(stream: &mut TcpStream, body: &str) -> bool {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .is_ok()
}

#[test]
fn whoever_has_fewer_requests_gets_the_next() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let slow = Upstream::start(move |_, stream| {
        let _ = held.lock().unwrap().recv();
        say(stream, "slow")
    });
    let fast = Upstream::saying("fast");
    let service = before(&[&slow, &fast], "");
    thread::scope(|scope| {
        // Equals take turns, so one of two meets the slow one.
        for _ in 0..2 {
            let service = &service;
            scope.spawn(move || client(service).get("/").body);
        }
        wait_until("one is held", || slow.seen().len() == 1);
        wait_until("the other is answered", || fast.seen().len() == 1);
        for _ in 0..10 {
            assert_eq!(client(&service).get("/").body, "fast");
        }
        assert_eq!(slow.seen().len(), 1);
        release.send(()).unwrap();
    });
    drop(release);
    wait_until("it has a turn again", || {
        client(&service).get("/").body == "slow"
    });
}

#[test]
fn an_upstream_of_several_routes_is_one() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let slow = Upstream::start(move |_, stream| {
        let _ = held.lock().unwrap().recv();
        say(stream, "slow")
    });
    let fast = Upstream::saying("fast");
    let of = |id: &str| route(id, &format!("match: {{ path: [/{id}] }},"), &[&slow, &fast]);
    let service = start(&[of("a"), of("b")], "");
    thread::scope(|scope| {
        for _ in 0..2 {
            let service = &service;
            scope.spawn(move || client(service).get("/a").body);
        }
        wait_until("one is held", || slow.seen().len() == 1);
        wait_until("the other is answered", || fast.seen().len() == 1);
        for _ in 0..10 {
            assert_eq!(client(&service).get("/b").body, "fast");
        }
        release.send(()).unwrap();
    });
}

#[test]
fn what_was_not_sent_goes_to_the_next_one_and_the_dead_one_is_left_alone() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = port.local_addr().unwrap();
    drop(port);
    let alive = Upstream::saying("alive");
    let urls = format!("[\"http://{dead}\", \"{}\"]", alive.url());
    let service = start(&[format!("{{ id: r, upstreams: {urls} }}")], "");
    let mut http = client(&service);
    for number in 0..20 {
        let answer = http.request("POST", "/", &[], &format!("body {number}"));
        assert_eq!((answer.status, &*answer.body), (200, "alive"));
    }
    let bodies: Vec<_> = alive.seen().into_iter().map(|seen| seen.body).collect();
    let expected: Vec<_> = (0..20)
        .map(|number| format!("body {number}").into_bytes())
        .collect();
    assert_eq!(bodies, expected);

    // It comes back, is tried once its time is over, and has its turns again.
    let back = Upstream::listening(TcpListener::bind(dead).unwrap(), |_, stream| {
        say(stream, "back")
    });
    wait_until("it is tried", || http.get("/").body == "back");
    let answers: Vec<_> = (0..4).map(|_| http.get("/").body).collect();
    assert!(answers.iter().any(|body| body == "back"), "{answers:?}");
    assert!(answers.iter().any(|body| body == "alive"), "{answers:?}");
    drop(back);
}

#[test]
fn who_gives_no_answer_is_put_aside_and_the_request_is_not_sent_again() {
    let bad = Upstream::start(|_, _| false);
    let good = Upstream::saying("good");
    let service = before(&[&bad, &good], "");
    let mut http = client(&service);
    let answers: Vec<_> = (0..6)
        .map(|_| http.request("POST", "/", &[], "x").status)
        .collect();
    let failed = answers.iter().filter(|status| **status == 502).count();
    assert_eq!(failed, 1, "{answers:?}");
    assert_eq!((bad.seen().len(), good.seen().len()), (1, 5));
}

/// An upstream that closes the connection at the second request on it, and says
/// how many requests it got.
fn closing_at_the_second() -> (Upstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let upstream = Upstream::start(move |_, stream| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        number != 1 && say(stream, "ok")
    });
    (upstream, requests)
}

#[test]
fn what_may_have_been_sent_is_not_sent_again() {
    for method in ["GET", "POST"] {
        let (upstream, requests) = closing_at_the_second();
        let service = before(&[&upstream], "");
        let mut http = client(&service);
        assert_eq!(http.get("/1").status, 200);
        assert_problem(&http.request(method, "/2", &[], ""), 502);
        assert_eq!(requests.load(Ordering::Relaxed), 2, "{method}");
        assert_eq!(http.request("POST", "/3", &[], "x").status, 200);
        assert_eq!(upstream.connections(), 2);
    }
}

#[test]
fn connections_are_kept_and_new_ones_made_for_those_that_went() {
    let upstream = Upstream::saying("ok");
    let service = before(&[&upstream], "");
    let mut http = client(&service);
    for _ in 0..10 {
        assert_eq!(http.request("POST", "/", &[], "x").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
    upstream.close_connections();
    wait_until("a request passes", || http.get("/").status == 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn idle_connections_to_upstreams_are_closed() {
    let upstream = Upstream::start(|_, stream| {
        let sent = say(stream, "ok");
        // The next thing to be read is the end.
        sent
    });
    let service = before(&[&upstream], "  timeouts: { idle: 300ms }\n");
    assert_eq!(client(&service).get("/").status, 200);
    wait_for("a new connection for the next request", || {
        client(&service).get("/");
        thread::sleep(std::time::Duration::from_millis(350));
        (upstream.connections() >= 3).then_some(())
    });
}
