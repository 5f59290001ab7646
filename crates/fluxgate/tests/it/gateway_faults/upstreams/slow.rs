//! Upstreams that are slow, or fail within a response.

use std::time::Duration;

use fluxgate_testkit::{RawConnection, RawUpstream, timed, wait_until};

use super::super::{OK, TRANSPORTS, client, gateway};

#[test]
fn an_upstream_that_does_not_respond_in_time_is_a_504() {
    let upstream = RawUpstream::start(RawConnection::hold);
    let service = gateway(&[upstream.address()], "  timeouts: { request: 400ms }\n");
    for request in [
        "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let mut client = client(&service);
        // From before the request: the timeout may start before its sender goes on.
        let (response, took) = timed(|| {
            client.send(request);
            client.read_answer().unwrap()
        });
        assert_eq!(response.status, 504);
        assert_eq!(
            response.values("content-type"),
            ["application/problem+json"]
        );
        let bounds = Duration::from_millis(390)..Duration::from_secs(20);
        assert!(bounds.contains(&took), "{took:?}");
    }
    // The upstream may accept and read late.
    wait_until("both upstream connections are closed", || {
        let received = upstream.received();
        received.len() == 2 && received.iter().all(|it| it.is_over)
    });
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn an_incomplete_response_head_is_a_504() {
    let upstream = RawUpstream::start(|connection| {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nContent-");
        connection.hold();
    });
    let service = gateway(&[upstream.address()], "  timeouts: { request: 400ms }\n");
    assert_eq!(client(&service).get("/x").unwrap().status, 504);
}

/// The timeout applies to the whole head, including interim responses, however often a
/// piece of it arrives.
#[test]
fn a_slow_response_head_is_a_504() {
    const INTERIM: &str = "HTTP/1.1 102 Processing\r\n\r\n";
    for (bytes, piece) in [(OK.to_owned(), 1), (INTERIM.repeat(15) + OK, INTERIM.len())] {
        let sent = bytes.clone();
        let upstream = RawUpstream::start(move |connection| {
            connection.read_request();
            connection.send_pieces(&sent, piece, Duration::from_millis(300));
        });
        let service = gateway(&[upstream.address()], "  timeouts: { request: 600ms }\n");
        for transport in TRANSPORTS {
            let mut client = client(&service);
            client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{transport}\r\n"));
            assert_eq!(
                client.read_answer().unwrap().status,
                504,
                "{transport}{bytes}"
            );
        }
    }
}

/// Its backlog is full, so it neither accepts nor refuses connections.
#[test]
fn connecting_has_a_timeout() {
    use socket2::{Domain, Socket, Type};
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // They fill the backlog.
    let fill = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address.into());
        socket
    };
    let _filling: Vec<_> = (0..4).map(fill).collect();
    let service = gateway(&[address], "  timeouts: { connect: 400ms, request: 15s }\n");
    let (response, took) = timed(|| client(&service).get("/x").unwrap());
    assert!([502, 504].contains(&response.status), "{response:?}");
    let bounds = Duration::from_millis(390)..Duration::from_secs(14);
    assert!(bounds.contains(&took), "{took:?}");
}

/// The timeout ends with the head.
#[test]
fn a_slow_response_body_is_forwarded() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
            connection.send_pieces("0123456789", 1, Duration::from_millis(400));
        }
    });
    // Longer than the head takes, even on a busy machine, and shorter than the body.
    let timeouts = "  timeouts: { request: 3s, idle: 15s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    let mut client = client(&service);
    for _ in 0..2 {
        assert_eq!(client.get("/x").unwrap().text(), "0123456789");
    }
}

#[test]
fn a_response_body_is_streamed() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            // The client sends a byte after it has seen the first chunk.
            connection.wait_for_bytes(1);
            connection.send("4\r\nlast\r\n0\r\n\r\n");
        }
    });
    let service = gateway(&[upstream.address()], "");
    let (_, mut stream) = client(&service).into_stream();
    std::io::Write::write_all(
        &mut stream,
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    .unwrap();
    // The upstream reads a complete request first.
    std::io::Write::write_all(&mut stream, b"0\r\n\r\n").unwrap();
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"first") {
        std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
        received.push(byte[0]);
    }
}

#[test]
fn a_truncated_response_is_aborted() {
    for resets in [true, false] {
        for head in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
            let upstream = RawUpstream::start(move |connection| {
                while let Some(request) = connection.read_request() {
                    if request.target == "/ok" {
                        connection.send(OK);
                        continue;
                    }
                    connection.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n"));
                    connection.send("5000\r\n");
                    connection.send(vec![b'x'; 0x5000]);
                    // The gateway forwards the first part before the connection ends.
                    connection.pause(Duration::from_millis(50));
                    if resets {
                        connection.break_at_end();
                    }
                    return;
                }
            });
            let service = gateway(&[upstream.address()], "");
            for is_reused in [false, true] {
                let mut client = client(&service);
                if is_reused {
                    assert_eq!(client.get("/ok").unwrap().status, 200);
                }
                let error = client.get("/truncated").unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
            }
        }
    }
}
