//! Too slow to wait for, and dying in the middle.

use std::time::Duration;

use fluxgate_testkit::{RawConnection, RawUpstream, timed, wait_until};

use super::super::{OK, client, gateway};

#[test]
fn an_upstream_that_does_not_answer_in_time_is_told() {
    let upstream = RawUpstream::start(RawConnection::hold);
    let service = gateway(&[upstream.address()], "  timeouts: { request: 400ms }\n");
    for request in [
        "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let mut client = client(&service);
        client.send(request);
        let (answer, took) = timed(|| client.read_answer().unwrap());
        assert_eq!(answer.status, 504);
        assert_eq!(answer.values("content-type"), ["application/problem+json"]);
        let bounds = Duration::from_millis(390)..Duration::from_secs(5);
        assert!(bounds.contains(&took), "{took:?}");
    }
    wait_until("the upstream is let go", || {
        upstream.received().iter().all(|it| it.is_over)
    });
    assert_eq!(upstream.requests().len(), 2);
}

/// Half a head is no answer.
#[test]
fn an_upstream_that_stops_in_its_head_is_told() {
    let upstream = RawUpstream::start(|connection| {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nContent-");
        connection.hold();
    });
    let service = gateway(&[upstream.address()], "  timeouts: { request: 400ms }\n");
    assert_eq!(client(&service).get("/x").unwrap().status, 504);
}

/// A head has its time as a whole, however often a piece of it comes; and so have
/// those that come before it.
#[test]
fn an_upstream_whose_head_drips_is_told() {
    const INTERIM: &str = "HTTP/1.1 102 Processing\r\n\r\n";
    for (said, piece) in [(OK.to_owned(), 1), (INTERIM.repeat(8) + OK, INTERIM.len())] {
        let sent = said.clone();
        let upstream = RawUpstream::start(move |connection| {
            connection.read_request();
            connection.send_pieces(&sent, piece, Duration::from_millis(300));
        });
        let service = gateway(&[upstream.address()], "  timeouts: { request: 600ms }\n");
        for way in ["", "TE: trailers\r\n"] {
            let mut client = client(&service);
            client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{way}\r\n"));
            assert_eq!(client.read_answer().unwrap().status, 504, "{way}{said}");
        }
    }
}

/// It takes no connections, and says nothing.
#[test]
fn an_upstream_that_cannot_be_reached_in_time_is_told() {
    use socket2::{Domain, Socket, Type};
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // They fill its queue, so that further ones are not answered at all.
    let fill = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address.into());
        socket
    };
    let _filling: Vec<_> = (0..4).map(fill).collect();
    let service = gateway(&[address], "  timeouts: { connect: 400ms, request: 15s }\n");
    let (answer, took) = timed(|| client(&service).get("/x").unwrap());
    assert!([502, 504].contains(&answer.status), "{answer:?}");
    let bounds = Duration::from_millis(390)..Duration::from_secs(5);
    assert!(bounds.contains(&took), "{took:?}");
}

/// An answer that has begun may take its time.
#[test]
fn a_slow_body_is_no_slow_answer() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
            connection.send_pieces("0123456789", 1, Duration::from_millis(100));
        }
    });
    let times = "  timeouts: { request: 300ms, idle: 5s }\n";
    let service = gateway(&[upstream.address()], times);
    let mut client = client(&service);
    for _ in 0..2 {
        assert_eq!(client.get("/x").unwrap().text(), "0123456789");
    }
}

/// What has come is passed on at once, and not when all has come.
#[test]
fn an_answer_is_passed_on_as_it_comes() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            // Until the client says that it has seen it.
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
    // The upstream wants a whole request first.
    std::io::Write::write_all(&mut stream, b"0\r\n\r\n").unwrap();
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"first") {
        std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
        seen.push(byte[0]);
    }
}

#[test]
fn an_answer_that_breaks_off_is_cut_off() {
    for breaks in [true, false] {
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
                    // So that it has gone before the end comes.
                    connection.pause(Duration::from_millis(50));
                    if breaks {
                        connection.break_at_end();
                    }
                    return;
                }
            });
            let service = gateway(&[upstream.address()], "");
            for before in [false, true] {
                let mut client = client(&service);
                if before {
                    assert_eq!(client.get("/ok").unwrap().status, 200);
                }
                let error = client.get("/dies").unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
            }
        }
    }
}
