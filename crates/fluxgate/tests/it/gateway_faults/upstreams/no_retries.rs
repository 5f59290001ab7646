//! A request that may have been sent is never sent again.

use std::net::SocketAddr;

use fluxgate_testkit::{RawConnection, RawUpstream, WireRequest, wait_until};

use super::super::{OK, client, gateway};

/// How an upstream fails after it has received a request.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Close,
    Reset,
    PartialHead,
    Garbage,
}

impl Failure {
    fn fail(self, connection: &mut RawConnection) {
        match self {
            Self::Close => {}
            Self::Reset => connection.break_at_end(),
            Self::PartialHead => connection.send("HTTP/1.1 200 OK\r\nConte"),
            Self::Garbage => connection.send("garbage\r\n\r\n"),
        }
    }
}

/// Starts an upstream that fails on every request for `/fail`.
fn failing_upstream(failure: Failure) -> RawUpstream {
    RawUpstream::start(move |connection| {
        while let Some(request) = connection.read_request() {
            if request.target == "/fail" {
                failure.fail(connection);
                return;
            }
            connection.send(OK);
        }
    })
}

fn count_failed(requests: &[WireRequest]) -> usize {
    requests.iter().filter(|it| it.target == "/fail").count()
}

#[test]
fn a_request_on_which_the_upstream_fails_is_not_retried() {
    for failure in [
        Failure::Close,
        Failure::Reset,
        Failure::PartialHead,
        Failure::Garbage,
    ] {
        // On a new connection, and on a reused one.
        for is_pooled in [false, true] {
            for rest in [
                "GET /fail HTTP/1.1\r\nHost: a\r\n\r\n",
                "PUT /fail HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
                "POST /fail HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
                "POST /fail HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ] {
                let upstreams = [failing_upstream(failure), failing_upstream(failure)];
                let addresses: Vec<SocketAddr> =
                    upstreams.iter().map(RawUpstream::address).collect();
                let service = gateway(&addresses, "");
                let mut client = client(&service);
                if is_pooled {
                    for _ in 0..4 {
                        assert_eq!(client.get("/x").unwrap().status, 200);
                    }
                }
                client.send(rest);
                let response = client.read_answer().unwrap();
                assert_eq!(response.status, 502, "{failure:?} {is_pooled} {rest:?}");
                let count: usize = upstreams
                    .iter()
                    .map(|it| count_failed(&it.requests()))
                    .sum();
                assert_eq!(count, 1, "{failure:?} {is_pooled} {rest:?}");
            }
        }
    }
}

/// The upstream has closed the connection, but the gateway may not have noticed yet.
#[test]
fn a_post_over_a_closing_connection_is_sent_at_most_once() {
    let upstream = RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            connection.send(OK);
            if request.target == "/then-close" {
                return;
            }
        }
    });
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    for _ in 0..50 {
        assert_eq!(client.get("/then-close").unwrap().status, 200);
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let response = client.read_answer().unwrap();
        assert!([200, 502].contains(&response.status), "{response:?}");
    }
    let requests = upstream.requests();
    let posts = requests.iter().filter(|it| it.method == "POST").count();
    assert!(posts <= 50, "{posts}");
    let gets = requests.iter().filter(|it| it.method == "GET").count();
    assert_eq!(gets, 50);
}

#[test]
fn a_request_that_times_out_is_not_retried() {
    let upstreams = [(); 2].map(|()| RawUpstream::start(RawConnection::hold));
    let addresses: Vec<SocketAddr> = upstreams.iter().map(RawUpstream::address).collect();
    let service = gateway(&addresses, "  timeouts: { request: 300ms }\n");
    let mut client = client(&service);
    assert_eq!(client.get("/x").unwrap().status, 504);
    let count = || -> usize { upstreams.iter().map(|it| it.requests().len()).sum() };
    // The upstream may read it late.
    wait_until("it is received", || count() > 0);
    assert_eq!(count(), 1);
}
