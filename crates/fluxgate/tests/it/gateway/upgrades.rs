//! Connections that switch to another protocol.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use fluxgate_testkit::WAIT_TIMEOUT;

use super::*;

/// Starts an upstream that switches to a protocol that echoes bytes in upper case.
fn uppercase_echo() -> Upstream {
    Upstream::start(|request, stream| {
        if request.header("upgrade") != ["websocket"] || request.header("connection") != ["upgrade"]
        {
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

fn upgrade(service: &Service) -> TcpStream {
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
fn bytes_pass_in_both_directions_and_the_end_is_forwarded() {
    let upstream = uppercase_echo();
    let service = gateway_to(&[&upstream], "");
    let mut stream = upgrade(&service);
    assert_eq!(read(&mut stream, 10), "helloEARLY");
    for _ in 0..3 {
        stream.write_all(b"ping").unwrap();
        assert_eq!(read(&mut stream, 4), "PING");
    }
    assert_eq!(upstream.only_request().header("sec-websocket-key"), ["k"]);
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn an_idle_upgraded_connection_is_closed() {
    let upstream = uppercase_echo();
    // Longer than the upstream takes for its echo, even on a busy machine.
    let service = gateway_to(&[&upstream], "  timeouts: { idle: 4s }\n");
    let mut stream = upgrade(&service);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"helloEARLY");
}

#[test]
fn an_idle_upgraded_connection_does_not_delay_the_shutdown() {
    let upstream = uppercase_echo();
    let service = gateway_to(&[&upstream], "");
    let mut stream = upgrade(&service);
    assert_eq!(read(&mut stream, 10), "helloEARLY");
    service.program.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(service.program.wait().code(), Some(0));
}

#[test]
fn an_upgrade_to_http2_is_not_forwarded() {
    let upstream = uppercase_echo();
    let service = gateway_to(&[&upstream], "");
    let mut http = client(&service);
    let headers = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAA"),
    ];
    assert_eq!(http.request("GET", "/", &headers, "").status, 426);
    let request = upstream.only_request();
    assert!(request.header("upgrade").is_empty() && request.header("http2-settings").is_empty());
}
