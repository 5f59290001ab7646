//! Bodies are forwarded as they arrive.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use fluxgate_testkit::{RawConnection, RawUpstream, WAIT_TIMEOUT, wait_until};

use super::*;

fn connect(service: &Service) -> TcpStream {
    let stream = TcpStream::connect(service.address("gateway")).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    stream
}

/// Reads up to and including `end`.
#[track_caller]
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        let read = stream.read(&mut byte).unwrap();
        assert_eq!(read, 1, "{end:?} in {:?}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn a_response_body_is_streamed_with_its_trailers() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = Upstream::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n";
        stream
            .write_all(format!("{head}5\r\nfirst\r\n").as_bytes())
            .unwrap();
        released.lock().unwrap().recv().unwrap();
        stream
            .write_all(b"4\r\nlast\r\n0\r\nx-sum: 9\r\n\r\n")
            .is_ok()
    });
    let service = gateway_to(&[&upstream], "");
    let mut stream = connect(&service);
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n")
        .unwrap();
    read_until(&mut stream, "5\r\nfirst\r\n");
    release.send(()).unwrap();
    let rest = read_until(&mut stream, "\r\n\r\n");
    assert_eq!(rest, "4\r\nlast\r\n0\r\nx-sum: 9\r\n\r\n");
}

#[test]
fn a_request_body_is_streamed() {
    let (received_first, first_chunk) = mpsc::channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        read_until(&mut stream, "5\r\nfirst\r\n");
        received_first.send(()).unwrap();
        read_until(&mut stream, "0\r\n\r\n");
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .unwrap();
    });
    let service = start(
        &[format!("{{ id: r, upstreams: [\"http://{address}\"] }}")],
        "",
    );
    let mut stream = connect(&service);
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
        )
        .unwrap();
    first_chunk.recv_timeout(WAIT_TIMEOUT).unwrap();
    stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 204"));
    upstream.join().unwrap();
}

#[test]
fn a_truncated_response_does_not_look_complete() {
    let upstream = Upstream::start(|request, stream| {
        let rest = match request.request_line().split(' ').nth(1).unwrap() {
            "/chunked" => "transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n",
            "/length" => "content-length: 10\r\n\r\nfirst",
            "/no-chunk" => "transfer-encoding: chunked\r\n\r\n",
            _ => "content-length: 10\r\n\r\n",
        };
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\n{rest}").as_bytes())
            .unwrap();
        false
    });
    let service = gateway_to(&[&upstream], "");
    for path in ["/chunked", "/length", "/no-chunk", "/no-body"] {
        let mut stream = connect(&service);
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        // A client that sees no head at all may retry.
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {text:?}");
        assert!(
            !body.contains("0\r\n\r\n") && body.len() < 12,
            "{path}: {text:?}"
        );
    }
}

#[test]
fn a_body_is_forwarded_with_any_method() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "");
    for (number, method) in ["GET", "DELETE", "POST", "OPTIONS"].into_iter().enumerate() {
        let mut http = client(&service);
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        http.send_raw(format!("{head}5\r\nhello\r\n0\r\n\r\n").as_bytes())
            .unwrap();
        assert_eq!(http.read_answer(false).unwrap().status, 200);
        let request = &upstream.requests()[number];
        assert_eq!(
            (&*request.body, request.header("transfer-encoding")),
            (&b"hello"[..], vec!["chunked"])
        );
    }
}

#[test]
fn a_truncated_request_does_not_look_complete_to_the_upstream() {
    let upstream = RawUpstream::start(RawConnection::hold);
    let address = upstream.address();
    let service = start(
        &[format!("{{ id: r, upstreams: [\"http://{address}\"] }}")],
        "",
    );
    let mut stream = connect(&service);
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
        )
        .unwrap();
    wait_until("it is forwarded", || {
        let received = upstream.received();
        { received.first() }.is_some_and(|it| it.bytes.ends_with(b"first\r\n"))
    });
    drop(stream);
    wait_until("the upstream sees the end", || {
        upstream.received()[0].is_over
    });
    assert_eq!(upstream.requests(), []);
}

#[test]
fn a_request_in_flight_is_answered_before_the_service_exits() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = Upstream::start(move |_, stream| {
        released.lock().unwrap().recv().unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone")
            .is_ok()
    });
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    http.send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    wait_until("it is in flight", || upstream.requests().len() == 1);
    service.program.signal("TERM");
    service.wait_for_log("shutting down");
    release.send(()).unwrap();
    let response = http.read_answer(false).unwrap();
    assert_eq!(
        (&*response.body, response.header("connection")),
        ("done", Some("close"))
    );
    assert_eq!(service.program.wait().code(), Some(0));
}
