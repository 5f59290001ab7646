//! Unreachable upstreams, and their recovery.

use std::time::Duration;

use fluxgate_testkit::{RawUpstream, ports, timed, wait_until};

use super::super::{OK, client, gateway, ok_upstream};

const PROBLEM: &str = "application/problem+json";

#[test]
fn an_unreachable_upstream_is_a_502() {
    let port = ports::free();
    let service = gateway(&[port.addr()], "");
    for request in [
        "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let mut client = client(&service);
        for _ in 0..3 {
            client.send(request);
            let (response, took) = timed(|| client.read_answer().unwrap());
            assert_eq!(response.status, 502);
            assert_eq!(response.values("content-type"), [PROBLEM]);
            assert!(took.as_secs() < 20, "{took:?}");
        }
    }
}

#[test]
fn an_upstream_that_comes_back_is_used_again_soon() {
    let port = ports::free();
    let service = gateway(&[port.addr()], "");
    for _ in 0..3 {
        let mut client = client(&service);
        for _ in 0..20 {
            assert_eq!(client.get("/x").unwrap().status, 502);
        }
        let upstream = RawUpstream::start_at(port.addr(), |connection| {
            while connection.read_request().is_some() {
                connection.send(OK);
            }
        });
        // Counted rather than measured, for a machine may stall.
        let mut attempts = 0;
        wait_until("it is served again", || {
            attempts += 1;
            client.get("/x").unwrap().status == 200
        });
        assert!(attempts < 100, "{attempts} attempts");
        for _ in 0..20 {
            assert_eq!(client.get("/x").unwrap().status, 200);
        }
        drop(upstream);
        wait_until("it is unreachable", || {
            client.get("/x").unwrap().status == 502
        });
    }
}

#[test]
fn while_one_of_two_upstreams_is_unreachable_the_other_is_used() {
    let port = ports::free();
    let upstream = ok_upstream();
    for addresses in [
        [port.addr(), upstream.address()],
        [upstream.address(), port.addr()],
    ] {
        let service = gateway(&addresses, "");
        let before = upstream.requests().len();
        for _ in 0..10 {
            let mut client = client(&service);
            for _ in 0..5 {
                assert_eq!(client.get("/x").unwrap().status, 200);
                client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
                assert_eq!(client.read_answer().unwrap().status, 200);
            }
        }
        assert_eq!(upstream.requests().len(), before + 100);
    }
}

#[test]
fn one_of_two_upstreams_that_comes_back_gets_requests_again() {
    let port = ports::free();
    let other = ok_upstream();
    let service = gateway(&[port.addr(), other.address()], "");
    let mut client = client(&service);
    let ((), before) = timed(|| {
        for _ in 0..20 {
            assert_eq!(client.get("/x").unwrap().status, 200);
        }
    });
    let revived = RawUpstream::start_at(port.addr(), |connection| {
        while connection.read_request().is_some() {
            connection.send(OK);
        }
    });
    let ((), took) = timed(|| {
        wait_until("it gets requests again", || {
            assert_eq!(client.get("/x").unwrap().status, 200);
            !revived.requests().is_empty()
        });
    });
    // Ejections double, so the last one takes no longer than those before it, and a second.
    let most = before + Duration::from_secs(1);
    assert!(
        took < most + Duration::from_secs(10),
        "{took:?} of {most:?}"
    );
}

/// Servers close idle connections; clients of the gateway do not notice.
#[test]
fn connections_that_the_upstream_closed_are_not_used() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    // The gateway looks at its idle connections once a second.
    for _ in 0..2 {
        for request in [
            "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        ] {
            client.send(request);
            assert_eq!(client.read_answer().unwrap().status, 200);
            upstream.finish_connections();
        }
    }
    assert_eq!(upstream.requests().len(), 4);
}
