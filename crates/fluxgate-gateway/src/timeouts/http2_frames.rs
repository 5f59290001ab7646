//! Tracks where the HTTP/2 frames of a client begin and end.

const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the bytes of a client, to know whether a frame other than `DATA`, or a head, is
/// incomplete.
#[derive(Debug)]
pub(super) struct FrameTracker {
    /// How much of the preface is missing.
    preface: usize,
    header: [u8; FRAME_HEADER],
    /// How much of the frame header has arrived.
    seen: usize,
    /// How much of the frame's payload is missing, once its header is complete.
    left: usize,
    /// Whether a head continues in the next frame.
    in_block: bool,
}

impl FrameTracker {
    pub(super) const fn new() -> Self {
        Self {
            preface: PREFACE,
            header: [0; FRAME_HEADER],
            seen: 0,
            left: 0,
            in_block: false,
        }
    }

    /// Reads the next bytes. Returns whether there was a point in them at which no frame or
    /// head was incomplete.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        let preface = self.preface.min(bytes.len());
        self.preface -= preface;
        bytes = &bytes[preface..];
        let mut was_complete = !self.is_incomplete();
        while !bytes.is_empty() {
            if self.seen < FRAME_HEADER {
                let count = bytes.len().min(FRAME_HEADER - self.seen);
                self.header[self.seen..self.seen + count].copy_from_slice(&bytes[..count]);
                self.seen += count;
                bytes = &bytes[count..];
                if self.seen < FRAME_HEADER {
                    break;
                }
                let [a, b, c, ..] = self.header;
                self.left = u32::from_be_bytes([0, a, b, c]) as usize;
            }
            let count = bytes.len().min(self.left);
            self.left -= count;
            bytes = &bytes[count..];
            if self.left == 0 {
                let [_, _, _, kind, flags, ..] = self.header;
                if matches!(kind, HEADERS | CONTINUATION) {
                    self.in_block = flags & END_HEADERS == 0;
                }
                self.seen = 0;
            }
            was_complete |= !self.is_incomplete();
        }
        was_complete || !self.is_incomplete()
    }

    /// Returns whether a head, or a frame other than `DATA`, is incomplete.
    pub(super) fn is_incomplete(&self) -> bool {
        let is_data = self.seen > 3 && self.header[3] == DATA;
        self.in_block || (self.seen > 0 && !is_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(FRAME_HEADER + usize::from(length), 7);
        frame
    }

    #[test]
    fn heads_are_incomplete_until_their_last_frame_ends_and_bodies_never_are() {
        let pieces = [
            (vec![b'P'; PREFACE], false),
            (frame(4, 0, 6), true),
            (frame(HEADERS, 0, 20), true),
            (frame(CONTINUATION, 0, 5), true),
            (frame(CONTINUATION, 0, 0), true),
            (frame(CONTINUATION, END_HEADERS, 3), true),
            (frame(DATA, 0, 30), false),
            (frame(DATA, 1, 0), false),
            (frame(HEADERS, END_HEADERS, 8), true),
        ];
        let mut tracker = FrameTracker::new();
        let mut in_block = false;
        for (piece, is_watched) in &pieces {
            let is_preface = piece.len() == PREFACE;
            for (at, byte) in piece.iter().enumerate() {
                let was_complete = tracker.read(&[*byte]);
                let is_last = at + 1 == piece.len();
                if is_last && !is_preface && matches!(piece[3], HEADERS | CONTINUATION) {
                    in_block = piece[4] & END_HEADERS == 0;
                }
                // Until its type has arrived, any frame may begin a head.
                let may_be_head = !is_preface && (*is_watched || at < 3);
                let expected = in_block || (may_be_head && !is_last);
                assert_eq!(tracker.is_incomplete(), expected, "{piece:?} {at}");
                if !expected {
                    assert!(was_complete);
                }
            }
        }
        // If all arrives at once, nothing was incomplete in between.
        let all: Vec<u8> = pieces.into_iter().flat_map(|(piece, _)| piece).collect();
        for end in PREFACE + 15..all.len() {
            let mut tracker = FrameTracker::new();
            assert!(tracker.read(&all[..end]), "{end}");
        }
    }
}
