//! Slots of concurrency rules: held until the response or the connection has ended.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use fluxgate_testkit::{WAIT_TIMEOUT, wait_until};

use super::*;
use crate::service::telemetry::Metrics;

const ONE_AT_A_TIME: &str = "filters: { main: { rule_set: s } }
rule_sets: { s: { rules: [ { id: r, scope: global, algorithm: concurrency, hold: 1h, bands: [ { capacity: 1 } ] } ] } }
";

/// Starts a gateway that lets one request at a time through to this upstream.
fn start_with_slot(upstream: &Upstream) -> Service {
    start(
        &[route("all", "filters: [main],", &[upstream])],
        ONE_AT_A_TIME,
    )
}

fn held(service: &Service) -> u64 {
    Metrics::of(service).get("fluxgate_slots_held{rule_set=\"s\",rule=\"r\"}")
}

/// Sends a request and reads the response up to the first byte of its body.
fn begin(service: &Service, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(service.address("gateway")).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"first") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    stream
}

#[test]
fn a_slot_is_held_until_the_body_has_ended_or_the_client_has_left() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = Upstream::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst";
        stream.write_all(head.as_bytes()).unwrap();
        released.lock().unwrap().recv().unwrap();
        stream.write_all(b" last").is_ok()
    });
    let service = start_with_slot(&upstream);
    // On the fast path, and through the HTTP library, which a chunked request body needs.
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
    ] {
        let mut stream = begin(&service, head);
        assert_eq!(held(&service), 1);
        assert_eq!(client(&service).get("/").status, 429);
        release.send(()).unwrap();
        let mut rest = [0; 5];
        stream.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b" last");
        wait_until("the slot is free", || held(&service) == 0);

        let leaving = begin(&service, head);
        assert_eq!(held(&service), 1);
        drop(leaving);
        release.send(()).unwrap();
        wait_until("the slot of the client that left", || held(&service) == 0);
    }
    assert_eq!(Metrics::of(&service).get("fluxgate_holds"), 0);
}

#[test]
fn an_upgraded_connection_holds_its_slot() {
    let upstream = Upstream::start(|_, stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst";
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.read(&mut [0; 9]);
        false
    });
    let service = start_with_slot(&upstream);
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let stream = begin(&service, head);
    assert_eq!(held(&service), 1);
    assert_eq!(client(&service).get("/").status, 429);
    drop(stream);
    wait_until("the slot is free", || held(&service) == 0);
}
