//! Writes a response on the fast path: its head, and its body as it arrives.

use std::future::poll_fn;
use std::io::Write as _;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use fluxgate_core::Decision;
use fluxgate_http::LimitHeaders;
use fluxgate_http::server::{
    ClientStream, request_id, wall_clock, write_date, write_header, write_status_line,
};
use fluxgate_llm::MeterOutput;

use super::client::Client;
use crate::exchange::{ChunkDecoder, Framing, ResponseHead};
use crate::llm::MeteredCall;
use crate::rewrite::ResponseChanges;
use crate::upstream::UpstreamStream;

/// The size of a read of a long body.
pub(super) const LONG_READ: usize = 64 * 1024;
/// A shorter body is read into the buffer that is there.
pub(super) const LONG: u64 = 32 * 1024;

/// Appends the status line and the headers of an upstream's response, without those that the
/// gateway sets and without the end of the head. `is_resized` says that the length of the body
/// changes.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_>,
    is_resized: bool,
    limit_headers: &LimitHeaders<Decision>,
    changes: &ResponseChanges<'_>,
) {
    write_status_line(out, head.status, head.reason);
    for (name, value) in &head.headers {
        let is_wrong = is_resized && name.eq_ignore_ascii_case("content-length");
        let is_dropped = !changes.is_empty() && changes.drops(name);
        if !is_wrong && !is_dropped && !is_replaced(name, limit_headers) {
            write_header(out, name, value);
        }
    }
    changes.write_text(out);
    if !head.has_date {
        write_date(wall_clock(), out);
    }
    match head.framing {
        Framing::Length(_) if is_resized => write_header(out, "transfer-encoding", b"chunked"),
        // A length is among the headers.
        Framing::None | Framing::Length(_) => {}
        Framing::Chunked | Framing::UntilClose => {
            write_header(out, "transfer-encoding", b"chunked");
        }
    }
}

/// Returns whether the gateway sets a header itself. The names of all of these begin with one
/// of two letters.
fn is_replaced(name: &str, limit_headers: &LimitHeaders<Decision>) -> bool {
    let may_be = matches!(name.as_bytes().first(), Some(b'x' | b'X' | b'r' | b'R'));
    may_be
        && (name.eq_ignore_ascii_case(request_id::NAME) || limit_headers.replaces(name.as_bytes()))
}

/// Copies the body of a response to the client.
pub(super) struct BodyCopy<'a, 'c, S> {
    pub(super) stream: &'a mut UpstreamStream,
    pub(super) client: &'a mut Client<'c, S>,
    /// How long the upstream may send nothing.
    pub(super) idle: Duration,
    /// How much of the body was copied.
    pub(super) copied: u64,
    /// Whether the upstream ended the body early, and not the client.
    pub(super) is_cut_off: bool,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    Complete,
    /// The upstream sent more than the body.
    Surplus,
    /// The client must see that the body is incomplete.
    Early,
}

impl<S: ClientStream> BodyCopy<'_, '_, S> {
    /// Sends `out`, which holds the head, and then the body until its end. `input` is the
    /// buffer to read into; `unread` is the part that has been read already.
    pub(super) async fn run(
        &mut self,
        framing: Framing,
        out: &mut Vec<u8>,
        input: &mut Vec<u8>,
        unread: Range<usize>,
    ) -> BodyEnd {
        match framing {
            Framing::None => self.copy_length(0, out, input, unread).await,
            Framing::Length(length) => self.copy_length(length, out, input, unread).await,
            Framing::Chunked => self.copy_chunks(out, input, unread).await,
            Framing::UntilClose => self.copy_rest(out, input, unread).await,
        }
    }

    async fn copy_length(
        &mut self,
        length: u64,
        out: &mut Vec<u8>,
        input: &mut Vec<u8>,
        unread: Range<usize>,
    ) -> BodyEnd {
        let here = unread.len();
        let count = usize::try_from(length).map_or(here, |length| length.min(here));
        out.extend_from_slice(&input[unread.start..unread.start + count]);
        if !self.client.send(out).await {
            return BodyEnd::Early;
        }
        self.copied = count as u64;
        let mut left = length - count as u64;
        if left > LONG && input.len() < LONG_READ {
            input.resize(LONG_READ, 0);
        }
        while left > 0 {
            // What follows the body is not read.
            let size = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
            match self.read(&mut input[..size]).await {
                Some(read @ 1..) if self.client.send(&input[..read]).await => {
                    left -= read as u64;
                    self.copied += read as u64;
                }
                _ => return BodyEnd::Early,
            }
        }
        if count < here {
            BodyEnd::Surplus
        } else {
            BodyEnd::Complete
        }
    }

    async fn copy_chunks(
        &mut self,
        out: &mut Vec<u8>,
        input: &mut [u8],
        mut unread: Range<usize>,
    ) -> BodyEnd {
        let mut decoder = ChunkDecoder::new(false);
        let mut content = Vec::new();
        loop {
            content.clear();
            let bytes = &input[unread];
            let Ok(read) = decoder.read(bytes, |piece| content.extend_from_slice(piece)) else {
                // Without the last chunk, the client sees that the body is incomplete.
                let _ = self.client.send(out).await;
                self.is_cut_off = true;
                return BodyEnd::Early;
            };
            write_chunk(&content, out);
            self.copied += content.len() as u64;
            if decoder.has_ended() {
                out.extend_from_slice(b"0\r\n\r\n");
            }
            if !self.client.send(out).await {
                return BodyEnd::Early;
            }
            if decoder.has_ended() {
                return if read < bytes.len() {
                    BodyEnd::Surplus
                } else {
                    BodyEnd::Complete
                };
            }
            out.clear();
            match self.read(input).await {
                Some(read @ 1..) => unread = 0..read,
                _ => return BodyEnd::Early,
            }
        }
    }

    async fn copy_rest(
        &mut self,
        out: &mut Vec<u8>,
        input: &mut [u8],
        mut unread: Range<usize>,
    ) -> BodyEnd {
        loop {
            self.copied += unread.len() as u64;
            write_chunk(&input[unread], out);
            if !self.client.send(out).await {
                return BodyEnd::Early;
            }
            out.clear();
            match self.read(input).await {
                Some(0) => break,
                Some(read) => unread = 0..read,
                None => return BodyEnd::Early,
            }
        }
        if self.client.send(b"0\r\n\r\n").await {
            BodyEnd::Complete
        } else {
            BodyEnd::Early
        }
    }

    /// Reads from the upstream; `None` if that fails, takes too long, or the client
    /// disconnects.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let read = self.read_unless_gone(buffer).await;
        self.is_cut_off = matches!(read, Some(None | Some(0)));
        read.flatten()
    }

    /// Reads from the upstream; `None` if the client disconnects, `Some(None)` if reading fails
    /// or takes too long.
    pub(super) async fn read_unless_gone(&mut self, buffer: &mut [u8]) -> Option<Option<usize>> {
        let stream = &mut *self.stream;
        stream.deadline.set_after(self.idle);
        let read = poll_fn(|cx| match stream.poll_fill(cx, buffer) {
            Poll::Ready(read) => Poll::Ready(read.ok()),
            Poll::Pending => stream.deadline.poll_elapsed(cx).map(|()| None),
        });
        self.client.unless_gone(pin!(read)).await
    }
}

/// Appends a chunk, unless it is empty: that would be the last one.
pub(super) fn write_chunk(content: &[u8], out: &mut Vec<u8>) {
    if !content.is_empty() {
        // Writing to memory does not fail.
        let _ = write!(out, "{:x}\r\n", content.len());
        out.extend_from_slice(content);
        out.extend_from_slice(b"\r\n");
    }
}

/// Decodes the body of a response.
enum Decoder {
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
}

/// What some bytes of a response hold.
struct DecodedChunk<'a> {
    content: &'a [u8],
    has_ended: bool,
    /// Whether more follows than the body.
    has_surplus: bool,
}

impl<S: ClientStream> BodyCopy<'_, '_, S> {
    /// Like [`BodyCopy::run`], for the answer to a call. It is settled before its last part is
    /// sent, or when this future ends early, by what was seen.
    pub(super) async fn run_metered(
        &mut self,
        framing: Framing,
        mut call: Box<MeteredCall>,
        out: &mut Vec<u8>,
        input: &mut Vec<u8>,
        mut unread: Range<usize>,
    ) -> BodyEnd {
        let mut decoder = match framing {
            Framing::None => Decoder::Length(0),
            Framing::Length(length) => Decoder::Length(length),
            Framing::Chunked => Decoder::Chunked(ChunkDecoder::new(false)),
            Framing::UntilClose => Decoder::UntilClose,
        };
        let is_chunked = match framing {
            Framing::None => false,
            Framing::Length(_) => call.removes_events,
            Framing::Chunked | Framing::UntilClose => true,
        };
        if matches!(framing, Framing::Length(length) if length > LONG) && input.len() < LONG_READ {
            input.resize(LONG_READ, 0);
        }
        let write = |content: &[u8], out: &mut Vec<u8>| {
            if is_chunked {
                write_chunk(content, out);
            } else {
                out.extend_from_slice(content);
            }
        };
        let mut scratch = Vec::new();
        let mut is_closed = false;
        while let Some(decoded) = decoder.read(&input[unread], is_closed, &mut scratch) {
            if !decoded.content.is_empty() {
                match call.feed(decoded.content) {
                    MeterOutput::Unchanged => {
                        self.copied += decoded.content.len() as u64;
                        write(decoded.content, out);
                    }
                    MeterOutput::Instead(content) => {
                        self.copied += content.len() as u64;
                        write(&content, out);
                    }
                }
            }
            if decoded.has_ended {
                let rest = call.finish();
                self.copied += rest.len() as u64;
                write(&rest, out);
                if is_chunked {
                    out.extend_from_slice(b"0\r\n\r\n");
                }
            }
            let end = match (decoded.has_ended, decoded.has_surplus) {
                (false, _) => None,
                (true, true) => Some(BodyEnd::Surplus),
                (true, false) => Some(BodyEnd::Complete),
            };
            if !out.is_empty() && !self.client.send(out).await {
                return BodyEnd::Early;
            }
            if let Some(end) = end {
                return end;
            }
            out.clear();
            let size = match &decoder {
                // What follows the body is not read.
                Decoder::Length(left) => {
                    usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()))
                }
                Decoder::Chunked(_) | Decoder::UntilClose => input.len(),
            };
            // If the client has left, the call is settled as it is dropped.
            let Some(read) = self.read_unless_gone(&mut input[..size]).await else {
                return BodyEnd::Early;
            };
            match (read, &decoder) {
                (Some(read @ 1..), _) => unread = 0..read,
                (Some(0), Decoder::UntilClose) => {
                    is_closed = true;
                    unread = 0..0;
                }
                _ => break,
            }
        }
        self.is_cut_off = true;
        // Without the last chunk, the client sees that the body is incomplete.
        write(&call.cut_off(), out);
        let _ = self.client.send(out).await;
        BodyEnd::Early
    }
}

impl Decoder {
    /// Decodes bytes; `is_closed` says that no more follow. Returns `None` if they are
    /// malformed. `scratch` is for content that does not stand in one piece.
    fn read<'a>(
        &mut self,
        bytes: &'a [u8],
        is_closed: bool,
        scratch: &'a mut Vec<u8>,
    ) -> Option<DecodedChunk<'a>> {
        match self {
            Self::Length(left) => {
                let here = bytes.len();
                let count = usize::try_from(*left).map_or(here, |left| left.min(here));
                *left -= count as u64;
                Some(DecodedChunk {
                    content: &bytes[..count],
                    has_ended: *left == 0,
                    has_surplus: count < here,
                })
            }
            Self::Chunked(decoder) => {
                scratch.clear();
                let read = decoder.read(bytes, |piece| scratch.extend_from_slice(piece));
                let read = read.ok()?;
                Some(DecodedChunk {
                    content: scratch,
                    has_ended: decoder.has_ended(),
                    has_surplus: read < bytes.len(),
                })
            }
            Self::UntilClose => Some(DecodedChunk {
                content: bytes,
                has_ended: is_closed,
                has_surplus: false,
            }),
        }
    }
}
