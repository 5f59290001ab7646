//! Bodies that arrive slowly, and responses that are read slowly.

use std::time::Duration;

use fluxgate_testkit::{RawUpstream, timed, wait_until};

use super::super::{OK, are_closed, assert_serves, client, gateway, ok_upstream, served_client};
use super::{DEADLINE, SHORT_TIMEOUTS, assert_closed};

#[test]
fn a_client_that_stops_sending_its_body_is_disconnected() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT_TIMEOUTS);
    for is_reused in [false, true] {
        for head in [
            "Content-Length: 10\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            // A bare line feed does not end a chunked body.
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n",
        ] {
            let mut slow = if is_reused {
                served_client(&service)
            } else {
                client(&service)
            };
            slow.send(format!("POST /slow HTTP/1.1\r\nHost: a\r\n{head}"));
            assert_serves(&service);
            assert_closed(&mut slow, &["408", "504", "400"]);
        }
    }
    wait_until("the upstream connection is closed", || {
        are_closed(&upstream, "POST /slow", 0)
    });
    assert!(upstream.requests().iter().all(|it| it.target != "/slow"));
}

#[test]
fn a_body_that_makes_progress_has_no_time_limit() {
    let upstream = ok_upstream();
    // Longer than a busy machine pauses between two bytes.
    let timeouts = "  timeouts: { headers: 4s, idle: 4s, request: 4s, connect: 4s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    let mut slow = client(&service);
    slow.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n");
    for _ in 0..20 {
        // In total, longer than any timeout.
        std::thread::sleep(Duration::from_millis(300));
        slow.send("x");
    }
    assert_eq!(slow.read_answer().unwrap().status, 200);
}

#[test]
fn a_client_that_stops_reading_is_disconnected() {
    const SIZE: usize = 64 << 20;
    let upstream = RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            if request.target == "/big" {
                connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
                connection.send(vec![b'x'; SIZE]);
                connection.hold();
            }
            connection.send(OK);
        }
    });
    // The head and the response arrive in time, even on a busy machine.
    let timeouts = "  timeouts: { headers: 10s, idle: 600ms, request: 10s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    for is_reused in [false, true] {
        let mut slow = client(&service);
        if is_reused {
            // In one write, so that no pause in between is an idle connection.
            slow.send(
                "GET /before HTTP/1.1\r\nHost: a\r\n\r\nGET /big HTTP/1.1\r\nHost: a\r\n\r\n",
            );
            assert_eq!(slow.read_answer().unwrap().status, 200);
        } else {
            slow.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let is_closed = || are_closed(&upstream, "GET /big", 1 + usize::from(is_reused));
        let ((), took) = timed(|| wait_until("the upstream connection is closed", is_closed));
        assert!(took < DEADLINE, "{took:?}");
        assert_serves(&service);
        assert!(slow.read_to_end().unwrap().len() < SIZE);
    }
}
