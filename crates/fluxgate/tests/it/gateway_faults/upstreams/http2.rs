//! Upstreams that break the rules of HTTP/2, or keep them and are of no use.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, timed, wait_until};

use super::super::TRANSPORTS;
use super::super::memory::used_kib;
use crate::service::Service;

const PREFACE: usize = 24;
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
/// `:status: 200` in HPACK.
pub(super) const OK: &[u8] = &[0x88];

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags][..], &stream.to_be_bytes()[..]].concat();
    [&head[..], payload].concat()
}

/// Returns a header in HPACK, without compression.
pub(super) fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = text.len();
        // Seven bits, or more in the following bytes.
        let mut encoded = vec![u8::try_from(length.min(127)).unwrap()];
        let mut rest = length.wrapping_sub(127);
        if length >= 127 {
            while rest >= 128 {
                encoded.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            encoded.push(u8::try_from(rest).unwrap());
        }
        encoded.extend_from_slice(text.as_bytes());
        encoded
    };
    [vec![0], text(name), text(value)].concat()
}

/// Returns an interim response (103).
pub(super) fn hints(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &header(":status", "103"))
}

pub(super) fn goaway(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat())
}

/// The server's side of a connection.
pub(super) struct Peer<'a> {
    stream: &'a mut TcpStream,
    bytes: Vec<u8>,
}

impl Peer<'_> {
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The gateway may have closed the connection.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Returns the type, the flags and the stream of the next frame. Acknowledges settings.
    fn read(&mut self) -> Option<(u8, u8, u32)> {
        loop {
            if let Some(head) = self.bytes.first_chunk::<9>() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                if self.bytes.len() >= 9 + length {
                    let (kind, flags) = (head[3], head[4]);
                    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                    self.bytes.drain(..9 + length);
                    if kind == SETTINGS && flags & ACK == 0 {
                        self.send(frame(SETTINGS, ACK, 0, &[]));
                    }
                    return Some((kind, flags, stream));
                }
            }
            let mut more = [0; 65_536];
            let count = self.stream.read(&mut more).ok().filter(|it| *it > 0)?;
            self.bytes.extend_from_slice(&more[..count]);
        }
    }

    /// Returns the next stream that a request begins.
    pub(super) fn next_stream(&mut self) -> Option<u32> {
        loop {
            let (kind, _, stream) = self.read()?;
            if kind == HEADERS {
                return Some(stream);
            }
        }
    }

    /// Reads until the gateway closes the connection.
    pub(super) fn hold(&mut self) {
        while self.read().is_some() {}
    }
}

/// Starts an upstream that sends its settings and then runs a script for each connection.
pub(super) fn upstream(
    settings: &'static [u8],
    script: impl Fn(&mut Peer<'_>) + Send + Sync + 'static,
) -> RawUpstream {
    RawUpstream::start(move |connection| {
        connection.wait_for_bytes(PREFACE);
        let (mut bytes, stream) = connection.stream();
        bytes.drain(..PREFACE);
        let mut peer = Peer { stream, bytes };
        peer.send(frame(SETTINGS, 0, 0, settings));
        script(&mut peer);
    })
}

/// Starts an upstream that sends these bytes to every request. In them, the stream is 0x7777.
pub(super) fn answering(bytes: Vec<u8>) -> RawUpstream {
    upstream(&[], move |peer| {
        while let Some(stream) = peer.next_stream() {
            let mut bytes = bytes.clone();
            let mut from = 0;
            while let Some(at) = bytes[from..]
                .windows(4)
                .position(|it| it == STREAM.to_be_bytes())
            {
                let to = from + at + 4;
                bytes[from + at..to].copy_from_slice(&stream.to_be_bytes());
                from = to;
            }
            peer.send(bytes);
        }
    })
}

pub(super) const STREAM: u32 = 0x7777;

fn gateway(upstream: &RawUpstream, settings: &str) -> Service {
    let config = format!(
        "gateway:\n{settings}  routes:\n    - {{ id: all, upstreams: ['h2c://{}'] }}\n",
        upstream.address()
    );
    Service::start(&["gateway"], &config)
}

const SHORT: &str = "  timeouts: { connect: 300ms, request: 300ms, idle: 500ms }\n";
/// For upstreams that do connect, however busy the machine is.
const SHORT_REQUEST: &str = "  timeouts: { connect: 1m, request: 300ms, idle: 500ms }\n";
/// For responses that take no time, however busy the machine is.
const SHORT_IDLE: &str = "  timeouts: { connect: 2s, request: 1m, idle: 500ms }\n";
/// Far longer than the timeouts that a test is about.
const DEADLINE: Duration = Duration::from_secs(20);

/// Sends a request and returns the status.
#[track_caller]
fn status(service: &Service, transport: &str) -> u16 {
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{transport}\r\n"));
    client.read_answer().unwrap().status
}

#[test]
fn a_bad_head_is_a_bad_gateway() {
    let head = |headers: &[(&str, &str)]| {
        let headers: Vec<u8> = headers
            .iter()
            .flat_map(|(name, value)| header(name, value))
            .collect();
        frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            STREAM,
            &[OK, &headers[..]].concat(),
        )
    };
    let large = [OK, &header("x-large", &"x".repeat(16_000))[..]].concat();
    let many: Vec<u8> = (0..30)
        .flat_map(|_| header("x-large", &"x".repeat(10_000)))
        .collect();
    let mut giant = frame(HEADERS, 0, STREAM, OK);
    for piece in many.chunks(16_000) {
        giant.extend(frame(CONTINUATION, 0, STREAM, piece));
    }
    giant.extend(frame(CONTINUATION, END_HEADERS, STREAM, &[]));
    for (what, bytes, expected) in [
        ("a good one", head(&[("x-a", "1")]), 200),
        (
            "a large one",
            frame(HEADERS, END_HEADERS | END_STREAM, STREAM, &large),
            200,
        ),
        ("a giant one", giant, 502),
        (
            "two lengths",
            head(&[("content-length", "0"), ("content-length", "1")]),
            502,
        ),
        (
            "a length twice",
            head(&[("content-length", "0"), ("content-length", "0")]),
            502,
        ),
        ("no number", head(&[("content-length", "+0")]), 502),
        (
            "a length without a body",
            head(&[("content-length", "5")]),
            502,
        ),
        (
            "transfer-encoding",
            head(&[("transfer-encoding", "chunked")]),
            502,
        ),
        ("connection", head(&[("connection", "close")]), 502),
        ("upgrade", head(&[("upgrade", "h2c")]), 502),
        ("upper case", head(&[("X-Upper", "1")]), 502),
        (
            "a line end in a value",
            head(&[("x-a", "1\r\nx-forged: 1")]),
            502,
        ),
        (
            "a line end in a name",
            head(&[("x-a: 1\r\nx-forged", "1")]),
            502,
        ),
        (
            "no status",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                STREAM,
                &header("x-a", "1"),
            ),
            502,
        ),
        (
            "garbage",
            frame(HEADERS, END_HEADERS | END_STREAM, STREAM, &[0xff; 40]),
            502,
        ),
        (
            "a body before the head",
            frame(DATA, 0, STREAM, b"hello"),
            502,
        ),
        ("a window of nothing", frame(8, 0, STREAM, &[0; 4]), 502),
        (
            "a reset",
            frame(RST_STREAM, 0, STREAM, &2_u32.to_be_bytes()),
            502,
        ),
        (
            "16 interim responses",
            [hints(STREAM).repeat(16), head(&[])].concat(),
            200,
        ),
        (
            "17 interim responses",
            [hints(STREAM).repeat(17), head(&[])].concat(),
            502,
        ),
        (
            "HTTP/1.1",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec(),
            502,
        ),
    ] {
        let upstream = answering(bytes);
        let service = gateway(&upstream, "");
        for transport in TRANSPORTS {
            assert_eq!(status(&service, transport), expected, "{what}");
        }
        if expected == 502 {
            let line = service.wait_for_log("not forwarded");
            assert!(
                line["upstream"].as_str().unwrap().starts_with("h2c://"),
                "{line}"
            );
            assert!(line["why"].as_str().unwrap().contains("upstream"), "{line}");
        }
    }
}

/// Clients can tell that a body is not complete.
#[test]
fn a_body_that_ends_otherwise_than_announced_is_cut_off() {
    let begin = |length: &str| {
        let head = [OK, &header("content-length", length)[..]].concat();
        frame(HEADERS, END_HEADERS, STREAM, &head)
    };
    let hello = |flags| frame(DATA, flags, STREAM, b"hello");
    let bare = frame(HEADERS, END_HEADERS, STREAM, OK);
    let reset = frame(RST_STREAM, 0, STREAM, &2_u32.to_be_bytes());
    for (what, bytes) in [
        ("too short", [begin("10"), hello(END_STREAM)].concat()),
        ("too long", [begin("3"), hello(END_STREAM)].concat()),
        ("reset", [bare.clone(), hello(0), reset].concat()),
        (
            "a broken connection",
            [begin("10"), hello(0), frame(SETTINGS, 0, 1, b"")].concat(),
        ),
    ] {
        let upstream = answering(bytes);
        let service = gateway(&upstream, "");
        for transport in TRANSPORTS {
            let mut client = RawClient::connect(service.address("gateway"));
            client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{transport}\r\n"));
            let answer = client.read_answer();
            // The head may have been sent before the fault was seen, or not.
            let is_whole = answer.as_ref().is_ok_and(|answer| answer.status == 200);
            assert!(!is_whole, "{what}: {answer:?}");
        }
    }
}

#[test]
fn a_silent_server_is_a_timeout_and_its_connection_is_given_up() {
    let upstream = upstream(&[], |peer| peer.hold());
    let service = gateway(&upstream, SHORT_REQUEST);
    for transport in TRANSPORTS {
        let (status, took) = timed(|| status(&service, transport));
        assert_eq!(status, 504, "{:?}", service.logs("not forwarded"));
        assert!(took < DEADLINE, "{took:?}");
    }
    // Nothing has arrived for so long that it may be dead.
    wait_until("its connections are closed", || {
        let received = upstream.received();
        received.len() >= 2 && received.iter().all(|connection| connection.is_over)
    });
}

#[test]
fn a_server_that_does_not_speak_http2_is_a_bad_gateway() {
    for (what, script) in [
        ("nothing", None),
        (
            "HTTP/1.1",
            Some("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
        ),
        ("a close", Some("")),
    ] {
        let upstream = RawUpstream::start(move |connection| match script {
            None => connection.hold(),
            Some(answer) => {
                connection.wait_for_bytes(PREFACE);
                connection.send(answer);
            }
        });
        let service = gateway(&upstream, SHORT);
        for transport in TRANSPORTS {
            let (status, took) = timed(|| status(&service, transport));
            assert_eq!(status, 502, "{what}");
            assert!(took < DEADLINE, "{what}: {took:?}");
        }
        wait_until("nothing is left open", || {
            upstream
                .received()
                .iter()
                .all(|connection| connection.is_over)
        });
    }
}

/// No request is sent for ever, and none is taken for served.
#[test]
fn storms_of_goaway_end_in_a_clear_answer() {
    for (what, settings, before) in [
        ("at once", &[][..], true),
        ("for each request", &[], false),
        // SETTINGS_MAX_CONCURRENT_STREAMS is 0.
        ("no streams", &[0, 3, 0, 0, 0, 0], false),
    ] {
        let upstream = upstream(settings, move |peer| {
            if before || peer.next_stream().is_some() {
                peer.send(goaway(0));
            }
            peer.hold();
        });
        let service = gateway(&upstream, SHORT_IDLE);
        for transport in TRANSPORTS {
            let (status, took) = timed(|| status(&service, transport));
            assert!([502, 503].contains(&status), "{what}: {status}");
            assert!(took < DEADLINE, "{what}: {took:?}");
        }
        wait_until("nothing is left open", || {
            upstream
                .received()
                .iter()
                .all(|connection| connection.is_over)
        });
    }
}

/// RFC 9113, section 6.8: streams above the last one were not processed; others may have been.
#[test]
fn only_streams_above_the_last_one_are_sent_again() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let connections = Arc::new(AtomicUsize::new(0));
    let upstream = upstream(&[], {
        let seen = Arc::clone(&seen);
        move |peer| {
            let number = connections.fetch_add(1, Ordering::SeqCst);
            while let Some(stream) = peer.next_stream() {
                seen.lock().unwrap().push((number, stream));
                match number {
                    // Not processed.
                    0 => peer.send(goaway(0)),
                    // Perhaps processed: the connection ends without an answer.
                    1 => {
                        peer.send(goaway(stream));
                        let _ = peer.stream.shutdown(std::net::Shutdown::Both);
                        return;
                    }
                    _ => peer.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, OK)),
                }
            }
        }
    });
    let service = gateway(&upstream, "");
    let mut client = RawClient::connect(service.address("gateway"));
    // The first connection refuses it, and the second one loses it.
    assert_eq!(client.get("/").unwrap().status, 502);
    assert_eq!(seen.lock().unwrap()[..], [(0, 1), (1, 1)]);
    wait_until("the upstream is tried again", || {
        client.get("/").unwrap().status == 200
    });
}

#[test]
fn a_window_that_never_opens_is_a_timeout() {
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let upstream = upstream(&[0, 4, 0, 0, 0, 0], |peer| peer.hold());
    let service = gateway(&upstream, SHORT_REQUEST);
    for transport in TRANSPORTS {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n{transport}\r\nhello"
        ));
        assert_eq!(client.read_answer().unwrap().status, 504);
    }
}

/// Frames that ask for an answer cost the gateway nothing that grows.
#[test]
fn a_flood_of_frames_harms_no_other_request() {
    let flooding = upstream(&[], |peer| {
        let Some(stream) = peer.next_stream() else {
            return;
        };
        let ping = frame(PING, 0, 0, &[7; 8]);
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]);
        let empty = frame(DATA, 0, stream, &[]);
        peer.send(frame(HEADERS, END_HEADERS, stream, OK));
        for _ in 0..2000 {
            peer.send(ping.repeat(20));
            peer.send(settings.repeat(20));
            peer.send(empty.repeat(20));
        }
    });
    let service = gateway(&flooding, SHORT);
    let before = used_kib(&service);
    let mut clients: Vec<_> = (0..4)
        .map(|_| RawClient::connect(service.address("gateway")))
        .collect();
    for client in &mut clients {
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let mut http = service.http();
    let mut times = [(); 21].map(|()| {
        let (answer, took) = timed(|| http.get("/readyz"));
        assert_eq!(answer.status, 200);
        took
    });
    // A busy machine may stall, but not for half of the requests.
    times.sort_unstable();
    assert!(times[10] < Duration::from_secs(2), "{times:?}");
    let grown = used_kib(&service).saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
}
