//! Connections that go on in another protocol.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use fluxgate_testkit::WAIT_TIMEOUT;

use super::*;

/// An upstream that goes on by sending back what it gets, in upper case.
fn shouting() -> Upstream {
    Upstream::start(|seen, stream| {
        if seen.header("upgrade") != ["websocket"] || seen.header("connection") != ["upgrade"] {
            let _ = stream.write_all(b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n");
            return true;
        }
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Accept: yes\r\n\r\nhello";
        stream.write_all(head.as_bytes()).unwrap();
        let mut bytes = [0; 100];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            stream
                .write_all(&bytes[..count].to_ascii_uppercase())
                .unwrap();
        }
        false
    })
}

fn upgraded(service: &Service) -> TcpStream {
    let mut stream = TcpStream::connect(service.address("gateway")).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let request = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nearly";
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head += &read(&mut stream, 1);
    }
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let head = head.to_ascii_lowercase();
    for line in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-accept: yes",
    ] {
        assert!(head.contains(line), "{head}");
    }
    stream
}

fn read(stream: &mut TcpStream, count: usize) -> String {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn bytes_go_both_ways_and_an_end_is_passed_on() {
    let upstream = shouting();
    let service = before(&[&upstream], "");
    let mut stream = upgraded(&service);
    assert_eq!(read(&mut stream, 10), "helloEARLY");
    for _ in 0..3 {
        stream.write_all(b"ping").unwrap();
        assert_eq!(read(&mut stream, 4), "PING");
    }
    assert_eq!(upstream.only().header("sec-websocket-key"), ["k"]);
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn one_in_which_nothing_moves_is_closed() {
    let upstream = shouting();
    let service = before(&[&upstream], "  timeouts: { idle: 300ms }\n");
    let mut stream = upgraded(&service);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"helloEARLY");
}

#[test]
fn one_that_is_idle_does_not_hold_up_the_end() {
    let upstream = shouting();
    let service = before(&[&upstream], "");
    let mut stream = upgraded(&service);
    assert_eq!(read(&mut stream, 10), "helloEARLY");
    service.program.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(service.program.wait().code(), Some(0));
}

#[test]
fn http2_is_not_carried_past_the_rules() {
    let upstream = shouting();
    let service = before(&[&upstream], "");
    let mut http = client(&service);
    let headers = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAA"),
    ];
    assert_eq!(http.request("GET", "/", &headers, "").status, 426);
    let seen = upstream.only();
    assert!(seen.header("upgrade").is_empty() && seen.header("http2-settings").is_empty());
}
