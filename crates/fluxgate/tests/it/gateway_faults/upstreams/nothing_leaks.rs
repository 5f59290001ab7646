//! Upstreams that lie or fail, again and again: each request gets a clear status and a reason, and
//! nothing is left of it.

use std::io::Write as _;
use std::thread;

use fluxgate_testkit::{RawUpstream, wait_for, wait_until};
use serde_json::Value;

use super::super::memory::used_kib;
use super::super::{TRANSPORTS, client};
use super::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, OK, RST_STREAM, STREAM, answering, frame,
    goaway, header, hints, upstream,
};
use crate::service::Service;

/// A fault of an upstream, and what the gateway makes of it: a status, and a part of the reason in the
/// access log.
struct Fault {
    what: &'static str,
    scheme: &'static str,
    upstream: RawUpstream,
    /// 200 if the client gets a part of the response.
    status: u16,
    reason: &'static str,
    /// Whether the gateway waits until a timeout.
    is_slow: bool,
}

/// Returns how often each fault is met over each transport.
fn times() -> usize {
    match std::env::var_os("FLUXGATE_LONG") {
        Some(_) => 100,
        None => 8,
    }
}

/// Starts an upstream that sends these bytes to each request, and then closes the connection or
/// keeps it.
fn over_http1(bytes: impl Into<Vec<u8>>, keeps: bool) -> RawUpstream {
    let bytes = bytes.into();
    RawUpstream::start(move |connection| {
        while connection.read_request().is_some() {
            let (_, stream) = connection.stream();
            if stream.write_all(&bytes).is_err() || !keeps {
                return;
            }
        }
    })
}

fn faults() -> Vec<Fault> {
    let fault = |scheme, what, upstream, status, reason| Fault {
        what,
        scheme,
        upstream,
        status,
        reason,
        is_slow: false,
    };
    let http1 = |what, bytes: Vec<u8>, keeps, status, reason| {
        fault("http", what, over_http1(bytes, keeps), status, reason)
    };
    let http2 = |what, upstream, status, reason| fault("h2c", what, upstream, status, reason);
    let slow = |fault| Fault {
        is_slow: true,
        ..fault
    };
    let giant = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(2_000_000));
    let cut = "the upstream did not send the whole response";
    let (silent, late) = (
        "the upstream sent no response",
        "the upstream did not respond in time",
    );
    let invalid = "the upstream sent no valid response";
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
    let with_length = [OK, &header("content-length", "10")[..]].concat();
    let short2 = [
        frame(HEADERS, END_HEADERS, STREAM, &with_length),
        frame(DATA, END_STREAM, STREAM, b"hello"),
    ];
    vec![
        http1("no answer", Vec::new(), false, 502, silent),
        http1("too short", short.into(), false, 200, cut),
        http1(
            "two lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok".to_vec(),
            true,
            502,
            invalid,
        ),
        http1(
            "interim responses",
            b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10_000),
            false,
            502,
            invalid,
        ),
        http1("a giant head", giant.into(), true, 502, invalid),
        fault(
            "http",
            "a reset",
            RawUpstream::start(|connection| {
                connection.read_request();
                connection.break_at_end();
            }),
            502,
            silent,
        ),
        slow(http1("silence", Vec::new(), true, 504, late)),
        slow(http1("a body that stops", short.into(), true, 200, cut)),
        http2(
            "GOAWAY for each request",
            upstream(&[], |peer| {
                if peer.next_stream().is_some() {
                    peer.send(goaway(0));
                }
                peer.hold();
            }),
            502,
            "the upstream refused the request",
        ),
        http2("too short", answering(short2.concat()), 200, cut),
        http2(
            "a reset",
            answering(frame(RST_STREAM, 0, STREAM, &2_u32.to_be_bytes())),
            502,
            silent,
        ),
        http2(
            "interim responses",
            answering(hints(STREAM).repeat(1_000)),
            502,
            invalid,
        ),
        http2(
            "a giant head",
            answering({
                let head = [OK, &header("x", &"x".repeat(10_000))[..]].concat();
                let part = frame(CONTINUATION, 0, STREAM, &header("x", &"x".repeat(10_000)));
                [frame(HEADERS, 0, STREAM, &head), part.repeat(100)].concat()
            }),
            502,
            "the upstream",
        ),
        // SETTINGS_INITIAL_WINDOW_SIZE is 0.
        slow(http2(
            "a window that never opens",
            upstream(&[0, 4, 0, 0, 0, 0], |peer| peer.hold()),
            504,
            late,
        )),
    ]
}

fn open_descriptors(service: &Service) -> u64 {
    let text = service.http().get("/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("process_open_fds "));
    line.unwrap().parse().unwrap()
}

/// Sends a request, and returns the status of its complete response.
fn status(service: &Service, target: &str, transport: &str) -> Option<u16> {
    let mut client = client(service);
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n{transport}\r\nhello"
    ));
    client.read_answer().ok().map(|answer| answer.status)
}

#[test]
fn each_request_has_a_reason_and_nothing_is_left_of_it() {
    let faults = faults();
    let route = |(number, fault): (usize, &Fault)| {
        // The others do not end by a timeout, however busy the machine is.
        let timeouts = if fault.is_slow {
            "request: 100ms, idle: 100ms"
        } else {
            "request: 10s"
        };
        let url = format!("{}://{}", fault.scheme, fault.upstream.address());
        format!(
            "    - {{ id: r{number}, match: {{ path: [/{number}] }}, upstreams: ['{url}'], \
             timeouts: {{ {timeouts} }} }}\n"
        )
    };
    let routes: String = faults.iter().enumerate().map(route).collect();
    let service = Service::start(
        &["gateway"],
        &format!(
            "gateway:\n  access_log: {{ file: access.log }}\n  \
             timeouts: {{ connect: 10s, idle: 1s }}\n  routes:\n{routes}"
        ),
    );
    let meet = |(number, fault): (usize, &Fault), times: usize| {
        for transport in (0..times).flat_map(|_| TRANSPORTS) {
            let status = status(&service, &format!("/{number}"), transport);
            let expected = Some(fault.status).filter(|status| *status != 200);
            assert_eq!(status, expected, "{} {transport}", fault.what);
        }
    };
    // All faults at once, each of them one time after the other.
    let meet_all = |times: usize| {
        thread::scope(|scope| {
            for fault in faults.iter().enumerate() {
                let meet = &meet;
                scope.spawn(move || meet(fault, times));
            }
        });
    };
    let descriptors = open_descriptors(&service);
    // Memory for what is built once is not lost.
    meet_all(1);
    let memory = used_kib(&service);
    meet_all(times() - 1);
    wait_until("the connections are closed", || {
        open_descriptors(&service) <= descriptors
    });
    let grown = used_kib(&service).saturating_sub(memory);
    assert!(grown < 32 * 1024, "{grown} KiB");

    let expected = faults.len() * times() * TRANSPORTS.len();
    let log = wait_for("a line for each request", || {
        let log = service.dir.read("access.log");
        (log.lines().count() == expected).then_some(log)
    });
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let route = line["route"].as_str().unwrap();
        let fault = &faults[route[1..].parse::<usize>().unwrap()];
        assert_eq!(line["status"], fault.status, "{}: {line}", fault.what);
        let error = line["error"].as_str().unwrap_or_default();
        assert!(error.starts_with(fault.reason), "{}: {line}", fault.what);
    }
    // A response that breaks off says nothing about the next one.
    let out = service.logs("an upstream is out");
    for (number, fault) in faults.iter().enumerate() {
        let route = format!("r{number}");
        let is_out = out.iter().any(|line| line["route"] == *route);
        assert_eq!(is_out, fault.status != 200, "{}: {out:?}", fault.what);
    }
}
