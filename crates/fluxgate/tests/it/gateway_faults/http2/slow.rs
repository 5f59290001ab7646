//! Slow clients over HTTP/2.

use fluxgate_testkit::{timed, wait_until};

use super::super::{are_let_go, assert_serves, client, gateway};
use super::{check, upstream};

const SHORT: &str = "  timeouts: { headers: 400ms, idle: 600ms, request: 1s, connect: 400ms }\n";
/// Pings may be answered late, as on a busy machine.
const SHUT: &str = "  timeouts: { headers: 5s, idle: 600ms }\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// `GET /big`, without an end of its stream if `flags` lack it.
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
fn those_who_stop_are_cut() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHORT);
    let starts: [Vec<u8>; 6] = [
        PREFACE[..10].to_vec(),
        PREFACE.to_vec(),
        [PREFACE, SETTINGS].concat(),
        // Half a frame.
        [PREFACE, SETTINGS, b"\0\0\x10\x01"].concat(),
        // A head that never ends.
        [PREFACE, SETTINGS, &head(1)].concat(),
        // A body that never comes.
        [PREFACE, SETTINGS, &head(4)].concat(),
    ];
    for start in starts {
        let mut slow = client(&service);
        slow.send(&start);
        assert_serves(&service);
        let (ended, took) = timed(|| slow.read_to_end());
        assert!(ended.is_ok(), "{} is not cut", start.escape_ascii());
        assert!(took.as_secs() < 15, "{} {took:?}", start.escape_ascii());
    }
}

/// However slowly it comes, and though another request is being answered.
#[test]
fn a_head_that_dribbles_is_cut() {
    let upstream = upstream();
    let timeouts = "  timeouts: { headers: 400ms, idle: 60s, request: 60s }\n";
    let service = gateway(&[upstream.address()], timeouts);
    let slow = b"\0\0\x0c\x01\x05\0\0\0\x01\x82\x86\x04\x05/slow\x41\x01a";
    // A head in one frame, and one in two.
    let in_one = &b""[..];
    let in_two = b"\0\0\x01\x01\x01\0\0\0\x03\x82";
    for (first, kind) in [(in_one, 1), (in_two, 9)] {
        let mut peer = client(&service);
        peer.send([PREFACE, SETTINGS, slow, first].concat());
        let mut rest = vec![0, 0x10, 0, kind, 4, 0, 0, 0, 3];
        rest.resize(2_000, 0x82);
        peer.set_read_timeout(std::time::Duration::from_millis(50));
        let (is_cut, took) = timed(|| {
            rest.chunks(1).take(160).any(|byte| {
                peer.send(byte);
                // Everything else it says is over soon.
                peer.read_to_end().is_ok()
            })
        });
        assert!(is_cut && took.as_millis() >= 400, "{took:?}");
        assert_serves(&service);
    }
}

/// The window of the stream is shut, and stays so.
#[test]
fn a_reader_that_stops_is_cut() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHORT);
    let mut slow = client(&service);
    slow.send([PREFACE, SETTINGS, &head(5)].concat());
    wait_until("it is asked", || !upstream.requests().is_empty());
    assert_serves(&service);
    let (ended, took) = timed(|| slow.read_to_end());
    assert!(ended.unwrap().len() < 1_000_000);
    assert!(took.as_secs() < 15, "{took:?}");
}

/// Nothing is ever let through, and every ping is answered.
#[test]
fn a_window_that_stays_shut_holds_nothing() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHUT);
    check(
        &service,
        "windows",
        &[
            "what_an_upstream_says_is_not_kept_for_ever",
            "what_we_say_is_not_kept_for_ever",
            "others_on_the_connection_go_on",
        ],
    );
    wait_until("the upstream is let go", || {
        are_let_go(&upstream, "GET /big", 2)
    });
}

#[test]
fn a_reader_that_goes_on_is_not_cut() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHUT);
    let checks = ["who_takes_little_by_little_is_served"];
    check(&service, "windows", &checks);
}

#[test]
fn a_connection_that_is_idle_ends_with_a_word() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], SHUT);
    check(&service, "windows", &["who_is_idle_is_told"]);
}
