//! Slow clients over HTTP/2.

use fluxgate_testkit::{timed, wait_until};

use super::super::{are_closed, assert_serves, client, gateway};
use super::{check, upstream};

const SHORT_TIMEOUTS: &str =
    "  timeouts: { headers: 400ms, idle: 600ms, request: 1s, connect: 400ms }\n";
/// The client may answer pings late on a busy machine.
const SHORT_IDLE: &str = "  timeouts: { headers: 5s, idle: 4s }\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// Returns the HEADERS frame of `GET /big` with these flags.
fn head(flags: u8) -> Vec<u8> {
    let block = b"\x82\x86\x04\x04/big\x41\x01a";
    let mut frame = vec![
        0,
        0,
        u8::try_from(block.len()).unwrap(),
        1,
        flags,
        0,
        0,
        0,
        1,
    ];
    frame.extend_from_slice(block);
    frame
}

#[test]
fn a_client_that_stops_sending_is_disconnected() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHORT_TIMEOUTS);
    let starts: [Vec<u8>; 6] = [
        PREFACE[..10].to_vec(),
        PREFACE.to_vec(),
        [PREFACE, SETTINGS].concat(),
        // Half a frame.
        [PREFACE, SETTINGS, b"\0\0\x10\x01"].concat(),
        // A head that never ends.
        [PREFACE, SETTINGS, &head(1)].concat(),
        // A body that never arrives.
        [PREFACE, SETTINGS, &head(4)].concat(),
    ];
    for start in starts {
        let mut slow = client(&service);
        slow.send(&start);
        assert_serves(&service);
        let (ended, took) = timed(|| slow.read_to_end());
        assert!(
            ended.is_ok(),
            "{} is not disconnected",
            start.escape_ascii()
        );
        assert!(took.as_secs() < 15, "{} {took:?}", start.escape_ascii());
    }
}

/// Single bytes do not extend the timeout, and neither does another request in flight.
#[test]
fn a_client_with_a_slow_head_is_disconnected() {
    let upstream = upstream();
    let timeouts = "  timeouts: { headers: 400ms, idle: 60s, request: 60s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    let slow = b"\0\0\x0c\x01\x05\0\0\0\x01\x82\x86\x04\x05/slow\x41\x01a";
    // The slow frame is HEADERS, or a CONTINUATION after HEADERS.
    let headers = &b""[..];
    let continuation = b"\0\0\x01\x01\x01\0\0\0\x03\x82";
    for (first, kind) in [(headers, 1), (continuation, 9)] {
        let mut rest = vec![0, 0x10, 0, kind, 4, 0, 0, 0, 3];
        rest.resize(2_000, 0x82);
        let (is_closed, took) = timed(|| {
            let mut peer = client(&service);
            peer.set_read_timeout(std::time::Duration::from_millis(50));
            peer.send([PREFACE, SETTINGS, slow, first].concat());
            rest.chunks(1).take(160).any(|byte| {
                peer.send(byte);
                // Times out after 50 ms while the connection is open.
                peer.read_to_end().is_ok()
            })
        });
        assert!(is_closed && took.as_millis() >= 400, "{took:?}");
        assert_serves(&service);
    }
}

/// The flow control window stays closed.
#[test]
fn a_client_that_stops_reading_is_disconnected() {
    let upstream = upstream();
    // The head arrives in time, even on a busy machine.
    let timeouts = "  timeouts: { headers: 10s, idle: 600ms, request: 10s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    let mut slow = client(&service);
    slow.send([PREFACE, SETTINGS, &head(5)].concat());
    wait_until("it is forwarded", || !upstream.requests().is_empty());
    assert_serves(&service);
    let (ended, took) = timed(|| slow.read_to_end());
    assert!(ended.unwrap().len() < 1_000_000);
    assert!(took.as_secs() < 15, "{took:?}");
}

/// The client answers every ping but never opens its window.
#[test]
fn a_stream_whose_window_stays_closed_is_reset() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHORT_IDLE);
    check(
        &service,
        "flow_control",
        &[
            "a_response_of_an_upstream_is_dropped",
            "a_response_of_the_gateway_is_dropped",
            "other_streams_are_not_affected",
        ],
    );
    wait_until("the upstream connection is closed", || {
        are_closed(&upstream, "GET /big", 2)
    });
}

#[test]
fn a_slow_reader_that_makes_progress_is_served() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHORT_IDLE);
    let checks = ["a_slow_reader_is_served"];
    check(&service, "flow_control", &checks);
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHORT_IDLE);
    check(
        &service,
        "flow_control",
        &["an_idle_connection_gets_goaway"],
    );
}
