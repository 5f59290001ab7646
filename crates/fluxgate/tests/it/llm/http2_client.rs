//! A client that sends bodies over HTTP/2, as far as the server's windows allow.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use fluxgate_testkit::WAIT_TIMEOUT;

use crate::service::Service;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// The largest frame that every server accepts.
const MAX_FRAME: i64 = 16_384;

/// A connection with several calls.
pub(super) struct Http2Client {
    stream: TcpStream,
    window: i64,
    initial_window: i64,
    calls: BTreeMap<u32, Call>,
}

/// A call, and what came back.
struct Call {
    /// How much of the body is left to send.
    left: i64,
    window: i64,
    answer: Vec<u8>,
    has_ended: bool,
}

impl Http2Client {
    pub(super) fn connect(service: &Service) -> Self {
        let mut stream = TcpStream::connect(service.address("gateway")).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(preface).unwrap();
        Self {
            stream,
            window: 65_535,
            initial_window: 65_535,
            calls: BTreeMap::new(),
        }
    }

    /// Sends the head of a call, whose body has `length` bytes.
    pub(super) fn begin(&mut self, path: &str, headers: &[(&str, &str)], length: i64) {
        let last = self.calls.keys().next_back();
        let number = last.map_or(1, |last| last + 2);
        // Each text is short enough for one byte of length, and none is added to a table.
        let mut head = vec![0x83, 0x86, 0x01, 1, b'a'];
        for (name, value) in [(":path", path)].iter().chain(headers) {
            head.push(0);
            for part in [name, value] {
                head.push(u8::try_from(part.len()).unwrap());
                head.extend_from_slice(part.as_bytes());
            }
        }
        self.frame(HEADERS, END_HEADERS, number, &head);
        let call = Call {
            left: length,
            window: self.initial_window,
            answer: Vec::new(),
            has_ended: false,
        };
        self.calls.insert(number, call);
    }

    /// Sends the bodies, each filled with `byte`, side by side, until every call is answered.
    /// Returns the bodies of the answers; that of a call that was reset may be empty.
    pub(super) fn send_bodies(&mut self, byte: u8, mut watch: impl FnMut()) -> Vec<String> {
        let part = [byte; MAX_FRAME as usize];
        while self.calls.values().any(|call| !call.has_ended) {
            let mut has_sent = false;
            for number in self.calls.keys().copied().collect::<Vec<_>>() {
                has_sent |= self.send_part(number, &part);
            }
            watch();
            if !has_sent {
                self.read_frame();
            }
        }
        self.read_answers()
    }

    /// Reads until every call is answered, without sending bodies.
    pub(super) fn read_answers(&mut self) -> Vec<String> {
        while self.calls.values().any(|call| !call.has_ended) {
            self.read_frame();
        }
        let calls = std::mem::take(&mut self.calls).into_values();
        calls
            .map(|call| String::from_utf8(call.answer).unwrap())
            .collect()
    }

    fn send_part(&mut self, number: u32, part: &[u8]) -> bool {
        let Some(call) = self.calls.get_mut(&number) else {
            return false;
        };
        let size = call.left.min(call.window).min(self.window).min(MAX_FRAME);
        if size <= 0 || call.has_ended {
            return false;
        }
        call.left -= size;
        call.window -= size;
        self.window -= size;
        let flags = if call.left == 0 { END_STREAM } else { 0 };
        let size = usize::try_from(size).unwrap();
        self.frame(DATA, flags, number, &part[..size]);
        true
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend_from_slice(&[kind, flags]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.stream.write_all(&bytes).unwrap();
    }

    fn read_frame(&mut self) {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).unwrap();
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
        };
        let mut payload = vec![0; usize::try_from(number(&head[..3])).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        let (kind, flags, stream) = (head[3], head[4], number(&head[5..]) & 0x7fff_ffff);
        let call = self.calls.get_mut(&stream);
        match (kind, call) {
            (SETTINGS, _) if flags & ACK == 0 => {
                for setting in payload.chunks(6).filter(|it| number(&it[..2]) == 4) {
                    let before = self.initial_window;
                    self.initial_window = number(&setting[2..]).into();
                    for call in self.calls.values_mut() {
                        call.window += self.initial_window - before;
                    }
                }
                self.frame(SETTINGS, ACK, 0, &[]);
            }
            (WINDOW_UPDATE, None) if stream == 0 => self.window += i64::from(number(&payload)),
            (WINDOW_UPDATE, Some(call)) => call.window += i64::from(number(&payload)),
            (DATA | HEADERS, Some(call)) => {
                if kind == DATA {
                    call.answer.extend_from_slice(&payload);
                }
                call.has_ended |= flags & END_STREAM != 0;
            }
            (RESET, Some(call)) => call.has_ended = true,
            _ => {}
        }
    }
}
