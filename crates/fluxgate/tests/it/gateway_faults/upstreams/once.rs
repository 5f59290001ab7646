//! No request is run twice, whatever becomes of it.

use std::net::SocketAddr;

use fluxgate_testkit::{RawConnection, RawUpstream, WireRequest};

use super::super::{OK, client, gateway};

/// How an upstream fails a request that it has taken.
#[derive(Clone, Copy, Debug)]
enum Failing {
    Close,
    Break,
    HalfAHead,
    Garbage,
}

impl Failing {
    fn fail(self, connection: &mut RawConnection) {
        match self {
            Self::Close => {}
            Self::Break => connection.break_at_end(),
            Self::HalfAHead => connection.send("HTTP/1.1 200 OK\r\nConte"),
            Self::Garbage => connection.send("garbage\r\n\r\n"),
        }
    }
}

/// Takes every request for `/fail` and dies of it.
fn failing(failing: Failing) -> RawUpstream {
    RawUpstream::start(move |connection| {
        while let Some(request) = connection.read_request() {
            if request.target == "/fail" {
                failing.fail(connection);
                return;
            }
            connection.send(OK);
        }
    })
}

fn fails(requests: &[WireRequest]) -> usize {
    requests.iter().filter(|it| it.target == "/fail").count()
}

#[test]
fn a_request_that_an_upstream_dies_of_is_not_sent_again() {
    for kind in [
        Failing::Close,
        Failing::Break,
        Failing::HalfAHead,
        Failing::Garbage,
    ] {
        // On a connection of its own, and on one that has served before.
        for is_pooled in [false, true] {
            for rest in [
                "GET /fail HTTP/1.1\r\nHost: a\r\n\r\n",
                "PUT /fail HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
                "POST /fail HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
                "POST /fail HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ] {
                let upstreams = [failing(kind), failing(kind)];
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
                let answer = client.read_answer().unwrap();
                assert_eq!(answer.status, 502, "{kind:?} {is_pooled} {rest:?}");
                let count: usize = upstreams.iter().map(|it| fails(&it.requests())).sum();
                assert_eq!(count, 1, "{kind:?} {is_pooled} {rest:?}");
            }
        }
    }
}

/// The connection is dead before the request is sent, but the gateway may not
/// know yet.
#[test]
fn a_post_on_a_dead_connection_is_run_once_at_most() {
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
    let mut posted = 0;
    for _ in 0..50 {
        assert_eq!(client.get("/then-close").unwrap().status, 200);
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let answer = client.read_answer().unwrap();
        assert!([200, 502].contains(&answer.status), "{answer:?}");
        posted += 1;
    }
    let requests = upstream.requests();
    let run = requests.iter().filter(|it| it.method == "POST").count();
    assert!(run <= posted, "{run} of {posted}");
    let asked = requests.iter().filter(|it| it.method == "GET").count();
    assert_eq!(asked, 50);
}

#[test]
fn a_slow_request_is_not_sent_again() {
    let upstreams = [(); 2].map(|()| RawUpstream::start(RawConnection::hold));
    let addresses: Vec<SocketAddr> = upstreams.iter().map(RawUpstream::address).collect();
    let service = gateway(&addresses, "  timeouts: { request: 300ms }\n");
    let mut client = client(&service);
    assert_eq!(client.get("/x").unwrap().status, 504);
    let count: usize = upstreams.iter().map(|it| it.requests().len()).sum();
    assert_eq!(count, 1);
}
