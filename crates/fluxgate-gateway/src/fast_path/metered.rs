//! Copies the answer to a call to a language model, which is counted as it passes.

use std::ops::Range;

use fluxgate_http::server::ClientStream;
use fluxgate_llm::MeterOutput;

use super::response::{BodyCopy, BodyEnd, LONG, LONG_READ, write_chunk};
use crate::exchange::{ChunkDecoder, Framing};
use crate::llm::MeteredCall;

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
            Framing::Length(_) => call.removes_events(),
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
                    MeterOutput::Unchanged => write(decoded.content, out),
                    MeterOutput::Instead(content) => write(&content, out),
                }
            }
            if decoded.has_ended {
                write(&call.finish(), out);
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
