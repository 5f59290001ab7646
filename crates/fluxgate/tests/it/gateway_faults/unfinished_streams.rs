//! Many HTTP/2 requests whose bodies never arrive. Other clients and listeners are served,
//! and the resources that such requests hold are bounded.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use fluxgate_testkit::{Cli, timed, wait_until};

use super::counting_upstream::CountingUpstream;
use super::{TRANSPORTS, assert_serves, client, config, gateway};
use crate::service::Service;
use crate::support::Dir;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const DESCRIPTORS: usize = 4096;
/// Connecting may be slow: the upstream gets more connections at once than its backlog
/// holds.
const SLOW_CONNECT: &str = "  timeouts: { connect: 10s }\n";
/// The default of `limits.streams`.
const STREAMS: usize = 100;

/// Starts all listeners with this limit on descriptors and these lines of the section
/// `gateway`.
fn start(upstream: &CountingUpstream, descriptors: usize, settings: &str) -> Service {
    let dir = Dir::new();
    let names = ["api", "grpc", "resp", "gateway"];
    let listen = names
        .map(|name| format!("{name}: \"127.0.0.1:0\""))
        .join(", ");
    let config = config(&[upstream.address], "", settings);
    dir.write("fluxgate.yaml", format!("listen: {{ {listen} }}\n{config}"));
    let limit = format!("--nofile={descriptors}:{descriptors}");
    let program = env!("CARGO_BIN_EXE_fluxgate");
    let arguments = [&limit, program, "run", "--config", "fluxgate.yaml"];
    let service = Service::open_by(dir, "prlimit".as_ref(), &arguments, names.len());
    service.wait_until_ready();
    service
}

/// Returns the head of `POST /upload` on this stream, without `END_STREAM`.
fn post(stream: u32) -> Vec<u8> {
    let block = b"\x83\x86\x04\x07/upload\x41\x01a";
    let mut frame = vec![0, 0, u8::try_from(block.len()).unwrap(), 1, 4];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(block);
    frame
}

/// Opens a connection with `count` unfinished requests.
fn unfinished(service: &Service, count: usize) -> TcpStream {
    let mut stream = TcpStream::connect(service.address("gateway")).unwrap();
    let heads = (0..count).flat_map(|number| post(2 * u32::try_from(number).unwrap() + 1));
    let bytes: Vec<u8> = PREFACE.iter().copied().chain(heads).collect();
    stream.write_all(&bytes).unwrap();
    stream
}

fn descriptors(service: &Service) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", service.program.id()));
    open.unwrap().count()
}

/// Asserts that new clients of every listener are served within seconds.
#[track_caller]
fn assert_all_serve(service: &Service) {
    for _ in 0..10 {
        let ((), took) = timed(|| {
            assert_serves(service);
            for transport in TRANSPORTS {
                let mut poster = client(service);
                let head = format!("POST /done HTTP/1.1\r\nHost: a\r\n{transport}");
                poster.send(format!("{head}Content-Length: 1\r\n\r\n!"));
                assert_eq!(poster.read_answer().unwrap().status, 200);
            }
            assert_eq!(service.http().get("/livez").status, 200);
            let mut resp = Cli::connect(service.address("resp")).unwrap();
            assert_eq!(resp.command(&["PING"]).text(), "PONG");
            let mut grpc = TcpStream::connect(service.address("grpc")).unwrap();
            grpc.write_all(PREFACE).unwrap();
            let mut settings = [0; 9];
            grpc.read_exact(&mut settings).unwrap();
            assert_eq!(settings[3], 4, "settings come first");
        });
        assert!(took.as_secs() < 10, "{took:?}");
    }
}

#[test]
fn six_connections_with_a_thousand_streams_each() {
    let upstream = CountingUpstream::start();
    let service = start(&upstream, DESCRIPTORS, SLOW_CONNECT);
    let attackers: Vec<_> = (0..6).map(|_| unfinished(&service, 1000)).collect();
    wait_until("they are forwarded", || upstream.pending() >= 6 * STREAMS);
    assert_all_serve(&service);
    let (open, descriptors) = (upstream.open(), descriptors(&service));
    // One for each stream, and the idle ones that other requests left.
    assert!(
        open <= 6 * STREAMS + 100,
        "{open} connections to the upstream"
    );
    assert!(descriptors < DESCRIPTORS / 2, "{descriptors} descriptors");
    drop(attackers);
    wait_until("all are aborted", || upstream.pending() == 0);
}

/// Each connection stays within `limits.streams`.
#[test]
fn sixty_connections_with_a_hundred_streams_each() {
    let upstream = CountingUpstream::start();
    let service = start(&upstream, DESCRIPTORS, SLOW_CONNECT);
    let attackers: Vec<_> = (0..60).map(|_| unfinished(&service, STREAMS)).collect();
    wait_until("half of the upstream connections are in use", || {
        upstream.pending() >= 1_400
    });
    assert_all_serve(&service);
    let (open, descriptors) = (upstream.open(), descriptors(&service));
    assert!(open <= 1_600, "{open} connections to the upstream");
    assert!(
        descriptors < DESCRIPTORS * 3 / 4,
        "{descriptors} descriptors"
    );
    drop(attackers);
    wait_until("all are aborted", || upstream.pending() == 0);
    let mut slow = client(&service);
    slow.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    wait_until("it is forwarded", || upstream.pending() == 1);
    slow.send("!");
    assert_eq!(slow.read_answer().unwrap().status, 200);
}

#[test]
fn idle_clients_leave_descriptors_to_others() {
    let upstream = CountingUpstream::start();
    let service = start(&upstream, 1024, "  timeouts: { headers: 10m, idle: 10m }\n");
    let mut idle: Vec<_> = (0..1_200).map(|_| client(&service)).collect();
    wait_until("they are accepted", || descriptors(&service) > 600);
    assert_eq!(service.http().get("/livez").status, 200);
    let mut resp = Cli::connect(service.address("resp")).unwrap();
    assert_eq!(resp.command(&["PING"]).text(), "PONG");
    // An accepted client still gets an upstream connection.
    assert_eq!(idle[0].get("/x").unwrap().status, 200);
}

/// While all upstream connections are in use, a further request is rejected. Once one is
/// free, the next request is served.
#[test]
fn requests_over_the_connection_limit_wait_and_are_rejected() {
    let upstream = CountingUpstream::start();
    let settings = "  limits: { upstream_connections: 2 }\n  timeouts: { connect: 300ms }\n";
    let service = gateway(&[upstream.address], settings);
    // Idle connections are closed if a request needs a new one.
    for _ in 0..4 {
        assert_serves(&service);
    }
    let hold = |transport: &str| {
        let mut holder = client(&service);
        let head =
            format!("POST /held HTTP/1.1\r\nHost: a\r\n{transport}Content-Length: 1\r\n\r\n?");
        holder.send(head);
        holder
    };
    let mut held = TRANSPORTS.map(hold);
    wait_until("both are forwarded", || upstream.pending() == 2);
    for transport in TRANSPORTS {
        let mut rejected = client(&service);
        rejected.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{transport}\r\n"));
        let response = rejected.read_answer().unwrap();
        assert_eq!(response.status, 503, "{response:?}");
        assert!(response.text().contains("too many requests are in flight"));
    }
    held[0].finish();
    wait_until("one is free", || upstream.pending() == 1);
    assert_serves(&service);
    // Incomplete bodies may hold one of two connections.
    drop(held);
    wait_until("both are free", || upstream.pending() == 0);
    let mut slow = client(&service);
    slow.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    wait_until("it is forwarded", || upstream.pending() == 1);
    let mut second = client(&service);
    second.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    assert_eq!(second.read_answer().unwrap().status, 503);
    assert_serves(&service);
    slow.send("!");
    assert_eq!(slow.read_answer().unwrap().status, 200);
}
