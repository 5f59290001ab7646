//! Bodies that come slowly, and answers that are read slowly.

use std::time::Duration;

use fluxgate_testkit::{RawUpstream, timed, wait_until};

use super::super::{OK, are_let_go, assert_serves, client, gateway, ok_upstream};
use super::{LONG, SHORT, assert_cut};

#[test]
fn a_body_that_stops_is_cut() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT);
    for before in [false, true] {
        for head in [
            "Content-Length: 10\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            // A bare line feed is no end of a body.
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n",
        ] {
            let mut slow = client(&service);
            if before {
                assert_eq!(slow.get("/before").unwrap().status, 200);
            }
            slow.send(format!("POST /slow HTTP/1.1\r\nHost: a\r\n{head}"));
            assert_serves(&service);
            assert_cut(&mut slow, &["408", "504", "400"]);
        }
    }
    wait_until("the upstream is let go", || {
        are_let_go(&upstream, "POST /slow", 0)
    });
    assert!(upstream.requests().iter().all(|it| it.target != "/slow"));
}

/// A body takes as long as it takes, as long as it goes on.
#[test]
fn a_body_that_goes_on_is_not_cut() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], SHORT);
    let mut slow = client(&service);
    slow.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n");
    for _ in 0..20 {
        // Twice as long as any limit in all.
        std::thread::sleep(Duration::from_millis(120));
        slow.send("x");
    }
    assert_eq!(slow.read_answer().unwrap().status, 200);
}

#[test]
fn a_reader_that_stops_is_cut() {
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
    let service = gateway(&[upstream.address()], SHORT);
    for before in [false, true] {
        let mut slow = client(&service);
        if before {
            assert_eq!(slow.get("/before").unwrap().status, 200);
        }
        slow.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
        let is_cut = || are_let_go(&upstream, "GET /big", 1 + usize::from(before));
        let ((), took) = timed(|| wait_until("the upstream is let go", is_cut));
        assert!(took < LONG, "{took:?}");
        assert_serves(&service);
        assert!(slow.read_to_end().unwrap().len() < SIZE);
    }
}
