//! Clients that cause floods of log lines: the log stays small, and every audit line is
//! written.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use fluxgate_testkit::{Certificates, WAIT_TIMEOUT, timed, wait_until};
use serde_json::Value;

use super::{Metrics, end, with_message};
use crate::service::Service;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 10, window: 1h } ] }
";
const GATEWAY: &str = "gateway:\n  routes: [ { id: all, upstreams: [echo] } ]\n";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PING: u8 = 6;
const ACK: u8 = 1;

/// Returns an HTTP/2 frame on stream 0.
fn frame(kind: u8, flags: u8, payload: [u8; 8]) -> [u8; 17] {
    let mut frame = [0; 17];
    (frame[2], frame[3], frame[4]) = (8, kind, flags);
    frame[9..].copy_from_slice(&payload);
    frame
}

/// Sends a frame `count` times over HTTP/2, and waits for the response to a final ping, by
/// which time the service has read them all.
fn send_frames(address: SocketAddr, repeated: [u8; 17], count: usize) {
    const BATCH: usize = 10_000;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    stream.write_all(PREFACE).unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    let frames = repeated.repeat(BATCH);
    for _ in 0..count / BATCH {
        stream.write_all(&frames).unwrap();
    }
    stream.write_all(&frame(PING, 0, *b"the last")).unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).unwrap();
        if (head[3], head[4]) == (PING, ACK) {
            assert_eq!(payload, b"the last");
            return;
        }
    }
}

/// Sends invalid bytes on several connections, one after the other.
fn send_garbage(address: SocketAddr, bytes: &[u8], connections: usize) {
    for _ in 0..connections {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        // The service may close the connection before everything is sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// Makes audited changes until the floods are over, at least ten. Returns their number.
fn make_changes(service: &Service, floods: &[thread::ScopedJoinHandle<'_, ()>]) -> usize {
    let mut http = service.http();
    let mut changes = 0;
    while changes < 10 || floods.iter().any(|it| !it.is_finished()) {
        let id = format!("change-{changes}");
        let headers = [("X-Request-Id", &*id), ("Content-Type", "application/json")];
        let body = r#"{"rule_set":"api","rule":"r","identity":"u","units":1}"#;
        let answer = http.request("POST", "/v1/refund", &headers, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        changes += 1;
    }
    changes
}

/// Asserts that the log has one audit line for each change.
fn assert_all_audited(lines: &[Value], changes: usize) {
    let audited = lines.iter().filter(|line| line["target"] == "audit");
    let audited: Vec<_> = audited.map(|line| line["request_id"].clone()).collect();
    let made: Vec<_> = (0..changes).map(|it| format!("change-{it}")).collect();
    assert_eq!(audited, made);
}

/// Returns the size of the log without audit lines.
fn bytes_without_audit(service: &Service) -> usize {
    let lines = service.program.lines();
    let others = lines.iter().filter(|line| !line.contains("\"audit\""));
    others.map(|line| line.len() + 1).sum()
}

/// Returns how large the log may be after a flood of this length: a busy machine takes longer
/// for the same flood, and each second adds some lines.
fn most_bytes(took: Duration) -> usize {
    const AT_ONCE: usize = 48 * 1024;
    const PER_SECOND: usize = 4 * 1024;
    AT_ONCE + PER_SECOND * (took.as_secs() as usize + 2)
}

#[test]
fn ping_acks_and_unknown_frames_are_sampled_and_audit_lines_are_not() {
    const ACKS: usize = 700_000;
    let service = Service::start(&["gateway", "grpc"], &(GATEWAY.to_owned() + RULES));
    let acks = frame(PING, ACK, *b"no ping!");
    let unknown = frame(0xfe, 0, *b"whatever");
    let (changes, took) = timed(|| {
        thread::scope(|scope| {
            let [gateway, grpc] = ["gateway", "grpc"].map(|it| service.address(it));
            let floods = [
                scope.spawn(move || send_frames(gateway, acks, ACKS)),
                scope.spawn(move || send_frames(grpc, acks, 20_000)),
                scope.spawn(move || send_frames(gateway, unknown, 100_000)),
                scope.spawn(move || send_frames(grpc, unknown, 20_000)),
            ];
            make_changes(&service, &floods)
        })
    });
    let suppressed = Metrics::of(&service).sum("fluxgate_log_lines_suppressed_total");
    let lines = end(&service);
    assert_all_audited(&lines, changes);
    // Each line is written or counted.
    let is_ack = |text: &Value| text.as_str().is_some_and(|it| it.contains("PING ack"));
    let written = lines.iter().filter(|line| is_ack(&line["message"])).count();
    let summaries = with_message(&lines, "log lines were suppressed");
    let counted: u64 = summaries
        .iter()
        .map(|line| {
            assert!(is_ack(&line["like"]), "{line}");
            assert_eq!(line["source"], "h2::proto::ping_pong");
            assert_eq!(line["level"], "WARN");
            line["lines"].as_u64().unwrap()
        })
        .sum();
    assert_eq!(counted, suppressed);
    assert_eq!(written as u64 + counted, ACKS as u64 + 20_000);
    // A burst of a hundred, ten lines per second, and one summary per second.
    let seconds = took.as_secs() as usize + 2;
    assert!(written <= 100 + 10 * seconds, "{written} in {took:?}");
    assert!(summaries.len() <= seconds, "{summaries:#?}");
    let bytes = bytes_without_audit(&service);
    assert!(bytes < most_bytes(took), "{bytes} bytes in {took:?}");
}

#[test]
fn invalid_bytes_on_any_listener_write_few_lines() {
    let certificates = Certificates::generate();
    let tls = format!(
        "  tls: {{ cert: \"{}\", key: \"{}\" }}\n",
        certificates.server_cert().display(),
        certificates.server_key().display()
    );
    let config = GATEWAY.to_owned() + &tls + RULES;
    let service = Service::start(&["gateway", "grpc", "resp"], &config);
    let garbage: [(&str, &[u8]); 8] = [
        (
            "gateway",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no hello",
        ),
        ("gateway", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        ("grpc", b"\x00\x01\x02 no preface\r\n\r\n"),
        (
            "grpc",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        ("api", b"NONSENSE\r\n\r\n"),
        ("api", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"),
        ("resp", b"*1\r\n$-5\r\nx\r\n"),
        ("resp", b"\x00\xff nothing\r\n"),
    ];
    let (changes, took) = timed(|| {
        thread::scope(|scope| {
            let floods = garbage.map(|(listener, bytes)| {
                let address = service.address(listener);
                scope.spawn(move || send_garbage(address, bytes, 250))
            });
            make_changes(&service, &floods)
        })
    });
    let lines = end(&service);
    assert_all_audited(&lines, changes);
    let bytes = bytes_without_audit(&service);
    assert!(
        bytes < most_bytes(took),
        "{bytes} bytes in {took:?}: {lines:#?}"
    );
}

#[test]
fn a_flood_from_one_cause_does_not_suppress_the_lines_of_others() {
    let service = Service::start(&["gateway"], &(GATEWAY.to_owned() + RULES));
    let gateway = service.address("gateway");
    send_frames(gateway, frame(PING, ACK, *b"no ping!"), 200_000);
    let mut http = service.http();
    for number in 0..5 {
        let body = format!(r#"{{"rule_set":"other-{number}"}}"#);
        assert_eq!(http.post("/v1/check", &body).status, 200);
    }
    service.wait_for_logs("there is no such rule set", 5);
    // The summary does not need another line of the cause.
    wait_until("a summary of all suppressed lines", || {
        let lines = service.logs("log lines were suppressed");
        let counted = lines.iter().filter_map(|line| line["lines"].as_u64());
        let suppressed = Metrics::of(&service).sum("fluxgate_log_lines_suppressed_total");
        suppressed > 100_000 && counted.sum::<u64>() == suppressed
    });
}
