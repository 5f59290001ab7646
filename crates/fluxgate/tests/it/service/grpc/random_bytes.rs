//! Random bytes on the gRPC listener.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use fluxgate_testkit::WAIT_TIMEOUT;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Client;
use crate::service::Service;
use crate::support::TWO_A_SECOND;

/// The preface of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn random_bytes_do_not_affect_other_clients() {
    let service = Service::start(&["grpc"], TWO_A_SECOND);
    let address = service.address("grpc");
    let mut client = Client::of(&service);
    let frame = (
        0..=10_u8,
        any::<u8>(),
        0..4_u8,
        prop::collection::vec(any::<u8>(), 0..40),
    );
    let frame = frame.prop_map(|(kind, flags, stream, payload)| {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        frame.extend(payload);
        frame
    });
    let noise = prop::collection::vec(any::<u8>(), 0..300);
    let frames = prop::collection::vec(frame, 0..8).prop_map(|frames| {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        [PREFACE, &settings, &frames.concat()].concat()
    });
    let http1 = prop::collection::vec(any::<u8>(), 0..100).prop_map(|body| {
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), &body].concat()
    });
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let bytes = prop_oneof![noise, frames, http1];
    TestRunner::new(config)
        .run(&bytes, |bytes| {
            send(address, &bytes);
            Ok(())
        })
        .unwrap();
    assert_eq!(client.check("api", "other", "x").code(), "OK");
    assert!(service.program.ended().is_none());
    let lines = service.program.lines();
    assert!(
        lines.iter().all(|line| !line.contains("panic")),
        "{lines:#?}"
    );
}

/// Sends the bytes and reads until the service closes the connection.
fn send(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    // The service may close the connection before everything is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let reset = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(reset, "{error}: {bytes:?}");
    }
}
