//! Heads that arrive slowly or never.

use std::time::Duration;

use fluxgate_testkit::{Certificates, timed, wait_for};

use super::super::{assert_serves, client, config, gateway, ok_upstream, served_client};
use super::{DEADLINE, SHORT_TIMEOUTS, assert_closed, read_until_closed};
use crate::service::Service;

#[test]
fn a_client_with_a_slow_head_is_disconnected() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT_TIMEOUTS);
    for (is_reused, head) in [
        (false, "GET /x HTTP/1.1\r\nHost: a\r\nX: "),
        (true, "GET /x HTTP/1.1\r\nHost: a\r\nX: "),
        (false, "G"),
        (true, "G"),
        (true, "GET /x HTTP/1.1\r\nHost: a\r\n"),
        (false, "\r\n"),
    ] {
        let mut slow = if is_reused {
            served_client(&service)
        } else {
            client(&service)
        };
        slow.send(head);
        assert_serves(&service);
        // Sending single bytes does not extend the timeout.
        slow.set_read_timeout(Duration::from_millis(20));
        let (answer, took) = timed(|| {
            wait_for("it is disconnected", || {
                slow.send("x");
                slow.read_to_end().ok()
            })
        });
        let answer = String::from_utf8(answer).unwrap();
        let is_timeout = answer.is_empty() || answer.starts_with("HTTP/1.1 408 ");
        assert!(is_timeout, "{head:?} {answer:?}");
        assert!(took < DEADLINE, "{head:?} {took:?}");
        assert_serves(&service);
    }
    let requests = upstream.requests();
    assert!(requests.iter().all(|request| request.target != "/x"));
}

#[test]
fn a_silent_client_is_disconnected() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT_TIMEOUTS);
    let mut silent = client(&service);
    assert_serves(&service);
    assert_closed(&mut silent, &["408"]);
}

#[test]
fn an_idle_connection_is_closed_after_its_timeout() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT_TIMEOUTS);
    // From before the request, after which the timeout starts.
    let (bytes, took) = timed(|| {
        let mut idle = served_client(&service);
        assert_serves(&service);
        read_until_closed(&mut idle).0
    });
    assert_eq!(bytes, "");
    assert!(
        (Duration::from_millis(600)..DEADLINE).contains(&took),
        "{took:?}"
    );
}

#[test]
fn a_pause_between_requests_does_not_count_as_a_slow_head() {
    let upstream = ok_upstream();
    let timeouts = "  timeouts: { headers: 200ms, idle: 30s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    let mut client = served_client(&service);
    for _ in 0..2 {
        // The pause itself is under test.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(client.get("/x").unwrap().status, 200);
    }
}

#[test]
fn a_client_without_a_tls_handshake_is_disconnected() {
    let upstream = ok_upstream();
    let certificates = Certificates::generate();
    let tls = format!(
        "  tls: {{ cert: {}, key: {} }}\n",
        certificates.server_cert().display(),
        certificates.server_key().display()
    );
    let config = config(&[upstream.address()], "", &format!("{SHORT_TIMEOUTS}{tls}"));
    let service = Service::start(&["gateway"], &config);
    let mut silent = client(&service);
    let mut partial = client(&service);
    partial.send(b"\x16\x03\x01\x00");
    let mut unencrypted = client(&service);
    unencrypted.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for client in [&mut silent, &mut partial, &mut unencrypted] {
        let (bytes, took) = timed(|| client.read_to_end().unwrap());
        assert!(took < DEADLINE, "{took:?}");
        assert!(!bytes.starts_with(b"HTTP/1.1 200"));
    }
}
