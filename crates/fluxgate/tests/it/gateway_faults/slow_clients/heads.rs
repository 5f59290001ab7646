//! Heads that come slowly, or not at all.

use std::time::Duration;

use fluxgate_testkit::{Certificates, timed, wait_until};

use super::super::{assert_serves, client, config, gateway, ok_upstream};
use super::{LONG, SHORT, assert_cut, end_of};
use crate::service::Service;

#[test]
fn slow_headers_are_cut() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT);
    for (before, head) in [
        (false, "GET /x HTTP/1.1\r\nHost: a\r\nX: "),
        (true, "GET /x HTTP/1.1\r\nHost: a\r\nX: "),
        (false, "G"),
        (true, "G"),
        (true, "GET /x HTTP/1.1\r\nHost: a\r\n"),
        (false, "\r\n"),
    ] {
        let mut slow = client(&service);
        if before {
            assert_eq!(slow.get("/before").unwrap().status, 200);
        }
        slow.send(head);
        assert_serves(&service);
        // A byte now and then does not help.
        let ((), took) = timed(|| {
            wait_until("it is cut off", || {
                slow.send("x");
                slow.has_ended() || slow.read_answer().is_ok_and(|it| it.status == 408)
            });
        });
        assert!(took < LONG, "{head:?} {took:?}");
        assert_serves(&service);
    }
    let requests = upstream.requests();
    assert!(requests.iter().all(|request| request.target != "/x"));
}

#[test]
fn a_client_that_says_nothing_is_cut() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT);
    let mut silent = client(&service);
    assert_serves(&service);
    assert_cut(&mut silent, &["408"]);
}

#[test]
fn a_connection_between_requests_is_closed_after_its_time() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT);
    let mut idle = client(&service);
    assert_eq!(idle.get("/x").unwrap().status, 200);
    assert_serves(&service);
    let (bytes, took) = end_of(&mut idle);
    assert_eq!(bytes, "");
    assert!(
        (Duration::from_millis(300)..LONG).contains(&took),
        "{took:?}"
    );
}

/// Time to think is not the time limit of headers.
#[test]
fn a_pause_between_requests_is_no_slow_header() {
    let upstream = ok_upstream();
    let times = "  timeouts: { headers: 200ms, idle: 30s }\n";
    let service = gateway(&[upstream.address()], times);
    let mut client = client(&service);
    for _ in 0..3 {
        assert_eq!(client.get("/x").unwrap().status, 200);
        // It is the pause itself that is tested.
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_handshake_that_is_never_made_is_cut() {
    let upstream = ok_upstream();
    let certificates = Certificates::generate();
    let tls = format!(
        "  tls: {{ cert: {}, key: {} }}\n",
        certificates.server_cert().display(),
        certificates.server_key().display()
    );
    let config = config(&[upstream.address()], "", &format!("{SHORT}{tls}"));
    let service = Service::start(&["gateway"], &config);
    let mut silent = client(&service);
    let mut begun = client(&service);
    begun.send(b"\x16\x03\x01\x00");
    let mut plain = client(&service);
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for client in [&mut silent, &mut begun, &mut plain] {
        let (bytes, took) = timed(|| client.read_to_end().unwrap());
        assert!(took < LONG, "{took:?}");
        assert!(!bytes.starts_with(b"HTTP/1.1 200"));
    }
}
