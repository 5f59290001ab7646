//! Where the frames of an HTTP/2 connection begin and end, however its bytes are split.

const FRAME_HEADER: usize = 9;

/// Follows the frames of one direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    header: [u8; FRAME_HEADER],
    /// How much of the header has arrived; 0 between two frames.
    seen: usize,
    /// How much of the payload is missing, once the header is complete.
    left: usize,
}

/// Part of the payload of a frame.
#[derive(Debug)]
pub(crate) struct FramePiece<'b> {
    /// The type of the frame.
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) payload: &'b [u8],
    /// Whether the payload begins with it.
    pub(crate) is_first: bool,
    /// Whether the frame ends with it.
    pub(crate) is_last: bool,
}

impl FrameReader {
    /// Takes the next piece of a frame from the bytes. `None` if they end within a header, or are
    /// used up.
    pub(crate) fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<FramePiece<'b>> {
        if bytes.is_empty() {
            return None;
        }
        let is_first = self.seen < FRAME_HEADER;
        if is_first {
            let count = bytes.len().min(FRAME_HEADER - self.seen);
            let (part, rest) = bytes.split_at(count);
            self.header[self.seen..self.seen + count].copy_from_slice(part);
            self.seen += count;
            *bytes = rest;
            if self.seen < FRAME_HEADER {
                return None;
            }
            let [a, b, c, ..] = self.header;
            self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        }
        let (payload, rest) = bytes.split_at(bytes.len().min(self.left));
        self.left -= payload.len();
        *bytes = rest;
        let is_last = self.left == 0;
        if is_last {
            self.seen = 0;
        }
        let [_, _, _, kind, flags, ..] = self.header;
        Some(FramePiece {
            kind,
            flags,
            payload,
            is_first,
            is_last,
        })
    }

    /// Returns whether a frame has begun and not ended.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.seen > 0
    }

    /// Returns the type of the frame that has begun, once it is known.
    pub(crate) fn kind(&self) -> Option<u8> {
        (self.seen > 3).then_some(self.header[3])
    }
}
