//! Unfinished streams: many requests over HTTP/2 whose bodies never come. Other
//! clients and listeners are served, and what they hold is bounded.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use fluxgate_testkit::{Cli, timed, wait_until};

use super::holding_upstream::HoldingUpstream;
use super::{assert_serves, client, config, gateway};
use crate::service::Service;
use crate::support::Dir;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const DESCRIPTORS: usize = 4096;
/// So many connections at once are more than the upstream has room for.
const PATIENT: &str = "  timeouts: { connect: 10s }\n";
/// The default of `limits.streams`.
const STREAMS: usize = 100;

/// All listeners, with this bound on descriptors, and lines of the section
/// `gateway`.
fn start(upstream: &HoldingUpstream, descriptors: usize, more: &str) -> Service {
    let dir = Dir::new();
    let names = ["api", "grpc", "resp", "gateway"];
    let listen = names
        .map(|name| format!("{name}: \"127.0.0.1:0\""))
        .join(", ");
    let config = config(&[upstream.address], "", more);
    dir.write("fluxgate.yaml", format!("listen: {{ {listen} }}\n{config}"));
    let bound = format!("--nofile={descriptors}:{descriptors}");
    let program = env!("CARGO_BIN_EXE_fluxgate");
    let arguments = [&bound, program, "run", "--config", "fluxgate.yaml"];
    let service = Service::open_by(dir, "prlimit".as_ref(), &arguments, names.len());
    service.wait_until_ready();
    service
}

/// The head of `POST /upload` on this stream, without an end of the stream.
fn post(stream: u32) -> Vec<u8> {
    let block = b"\x83\x86\x04\x07/upload\x41\x01a";
    let mut frame = vec![0, 0, u8::try_from(block.len()).unwrap(), 1, 4];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(block);
    frame
}

/// A connection with so many unfinished requests.
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

/// That new clients of every listener are served, and soon.
#[track_caller]
fn assert_all_serve(service: &Service) {
    for _ in 0..10 {
        let ((), took) = timed(|| {
            assert_serves(service);
            let mut poster = client(service);
            poster.send("POST /done HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n!");
            assert_eq!(poster.read_answer().unwrap().status, 200);
            // The longer way, and with a body.
            let mut other = client(service);
            other.send(
                "POST /done HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nContent-Length: 1\r\n\r\n!",
            );
            assert_eq!(other.read_answer().unwrap().status, 200);
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
fn a_thousand_on_each_of_six_connections() {
    let upstream = HoldingUpstream::start();
    let service = start(&upstream, DESCRIPTORS, PATIENT);
    let attackers: Vec<_> = (0..6).map(|_| unfinished(&service, 1000)).collect();
    wait_until("they are forwarded", || upstream.held() >= 6 * STREAMS);
    assert_all_serve(&service);
    let (open, descriptors) = (upstream.open(), descriptors(&service));
    // Those, and what the requests of others left to the next.
    assert!(
        open <= 6 * STREAMS + 100,
        "{open} connections to the upstream"
    );
    assert!(descriptors < DESCRIPTORS / 2, "{descriptors} descriptors");
    drop(attackers);
    wait_until("nothing is left", || upstream.held() == 0);
}

/// Each of them keeps to the bound of a connection.
#[test]
fn six_thousand_on_sixty_connections() {
    let upstream = HoldingUpstream::start();
    let service = start(&upstream, DESCRIPTORS, PATIENT);
    let attackers: Vec<_> = (0..60).map(|_| unfinished(&service, STREAMS)).collect();
    wait_until("half of what there is is taken", || {
        upstream.held() >= 1_400
    });
    assert_all_serve(&service);
    let (open, descriptors) = (upstream.open(), descriptors(&service));
    assert!(open <= 1_600, "{open} connections to the upstream");
    assert!(
        descriptors < DESCRIPTORS * 3 / 4,
        "{descriptors} descriptors"
    );
    drop(attackers);
    wait_until("nothing is left", || upstream.held() == 0);
    let mut slow = client(&service);
    slow.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    wait_until("it is forwarded", || upstream.held() == 1);
    slow.send("!");
    assert_eq!(slow.read_answer().unwrap().status, 200);
}

/// Connections of clients, which do nothing, are not all there can be either.
#[test]
fn idle_clients_leave_descriptors_to_others() {
    let upstream = HoldingUpstream::start();
    let service = start(&upstream, 1024, "  timeouts: { headers: 10m, idle: 10m }\n");
    let mut idle: Vec<_> = (0..1_200).map(|_| client(&service)).collect();
    wait_until("they are taken", || descriptors(&service) > 600);
    assert_eq!(service.http().get("/livez").status, 200);
    let mut resp = Cli::connect(service.address("resp")).unwrap();
    assert_eq!(resp.command(&["PING"]).text(), "PONG");
    // There is an upstream connection for those that were taken.
    assert_eq!(idle[0].get("/x").unwrap().status, 200);
}

/// As many requests as there may be connections wait for their upstream, and none
/// is idle: one more is refused, and the next is served when one of them has ended.
#[test]
fn beyond_the_bound_requests_wait_and_are_refused() {
    let upstream = HoldingUpstream::start();
    let more = "  limits: { upstream_connections: 2 }\n  timeouts: { connect: 300ms }\n";
    let service = gateway(&[upstream.address], more);
    // Idle connections are closed for those who need one.
    for _ in 0..4 {
        assert_serves(&service);
    }
    let hold = |lines: &str| {
        let mut holder = client(&service);
        let head = format!("POST /held HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: 1\r\n\r\n?");
        holder.send(head);
        holder
    };
    let mut held = [hold(""), hold("TE: trailers\r\n")];
    wait_until("both are taken", || upstream.held() == 2);
    for lines in ["", "TE: trailers\r\n"] {
        let mut refused = client(&service);
        refused.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let answer = refused.read_answer().unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.text().contains("too many requests are in flight"));
    }
    held[0].finish();
    wait_until("one is let go", || upstream.held() == 1);
    assert_serves(&service);
    // Of two connections, one may be held by a body that is still to come.
    drop(held);
    wait_until("both are let go", || upstream.held() == 0);
    let mut slow = client(&service);
    slow.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    wait_until("it is forwarded", || upstream.held() == 1);
    let mut second = client(&service);
    second.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    assert_eq!(second.read_answer().unwrap().status, 503);
    assert_serves(&service);
    slow.send("!");
    assert_eq!(slow.read_answer().unwrap().status, 200);
}
