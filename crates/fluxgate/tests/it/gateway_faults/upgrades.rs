//! Protocol upgrades: tunnels, and requests that must not become one.

use std::io::{Read, Write};

use fluxgate_testkit::{RawUpstream, WireRequest, wait_until};

use super::{OK, assert_serves, client, config, gateway, ok_upstream};
use crate::service::Service;

const UPGRADE: &str =
    "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Starts an upstream that switches to an echo protocol and sends `end` before it closes.
fn echo() -> RawUpstream {
    RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            if request.values("upgrade") != ["websocket"] {
                connection.send(OK);
                continue;
            }
            connection.send(SWITCHED);
            let (bytes, stream) = connection.stream();
            stream.write_all(&bytes).unwrap();
            let mut buffer = vec![0; 65536];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
            let _ = stream.write_all(b"end");
            return;
        }
    })
}

fn read_switched(stream: &mut impl Read) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
}

#[test]
fn bytes_pass_in_both_directions_and_each_direction_ends_separately() {
    let upstream = echo();
    let service = gateway(&[upstream.address()], "");
    for is_reused in [false, true] {
        let mut client = client(&service);
        if is_reused {
            assert_eq!(client.get("/before").unwrap().status, 200);
        }
        let (_, mut stream) = client.into_stream();
        // Bytes right after the request belong to the new protocol.
        stream.write_all(UPGRADE.as_bytes()).unwrap();
        stream.write_all(b"early").unwrap();
        read_switched(&mut stream);
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"early");
        let block = vec![b'x'; 1 << 20];
        let mut back = vec![0; 1 << 20];
        std::thread::scope(|scope| {
            let mut writing = stream.try_clone().unwrap();
            scope.spawn(move || writing.write_all(&block).unwrap());
            stream.read_exact(&mut back).unwrap();
        });
        assert!(back.iter().all(|byte| *byte == b'x'));
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "end");
    }
    assert_serves(&service);
}

#[test]
fn a_tunnel_closes_with_its_client() {
    let upstream = echo();
    let service = gateway(&[upstream.address()], "");
    let (_, mut stream) = client(&service).into_stream();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    read_switched(&mut stream);
    drop(stream);
    wait_until("the upstream connection is closed", || {
        upstream.received().iter().all(|it| it.is_over)
    });
}

#[test]
fn a_silent_tunnel_is_subject_only_to_the_idle_timeout() {
    let upstream = echo();
    // Longer than the upstream takes, even on a busy machine.
    let timeouts = "  timeouts: { headers: 3s, request: 3s, idle: 20s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    let (_, mut stream) = client(&service).into_stream();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    read_switched(&mut stream);
    // The pause itself is under test.
    std::thread::sleep(std::time::Duration::from_millis(3_500));
    stream.write_all(b"still").unwrap();
    let mut buffer = [0; 5];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"still");
}

/// If the upstream declines, the following bytes are requests, and each is limited.
#[test]
fn a_declined_upgrade_opens_no_tunnel() {
    let upstream = ok_upstream();
    let config = config(&[upstream.address()], "main", "");
    let more = "filters: { main: { rule_set: api } }
rule_sets:
  api:
    rules:
      - { id: r, scope: global, bands: [ { capacity: 3, window: 1h } ] }
";
    let service = Service::start(&["gateway"], &format!("{config}{more}"));
    let mut client = client(&service);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{UPGRADE}{}", hidden.repeat(4)));
    let statuses: Vec<_> = (0..5)
        .map(|_| client.read_answer().unwrap().status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    client.send(UPGRADE);
    assert_eq!(client.read_answer().unwrap().status, 429);
    assert_eq!(upstream.requests().len(), 3);
}

/// Requests inside of an HTTP/2 tunnel would bypass the limits.
#[test]
fn an_upgrade_to_http_2_is_not_forwarded() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    for lines in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        "Connection: Upgrade\r\nUpgrade: H2C\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
        "Connection: Upgrade\r\nUpgrade: h2\r\n",
    ] {
        let mut client = client(&service);
        client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let response = client.read_answer().unwrap();
        assert!(
            [200, 400, 501].contains(&response.status),
            "{lines:?} {response:?}"
        );
    }
    for request in upstream.requests() {
        let upgrades = request.values("upgrade").concat().to_ascii_lowercase();
        assert!(!upgrades.contains("h2"), "{request:?}");
        assert!(request.values("http2-settings").is_empty(), "{request:?}");
    }
}

/// `Upgrade` has no meaning without `Connection: Upgrade` or in HTTP/1.0.
#[test]
fn an_incomplete_upgrade_is_not_forwarded() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    for request in [
        "GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        "GET /x HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let mut client = client(&service);
        client.send(request);
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    let is_upgrade = |it: &WireRequest| !it.values("upgrade").is_empty();
    assert!(!upstream.requests().iter().any(is_upgrade));
}
