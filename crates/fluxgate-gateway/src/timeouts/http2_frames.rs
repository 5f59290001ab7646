//! Tracks where the HTTP/2 frames of a client begin and end.

use crate::http2_frames::FrameReader;

const PREFACE: usize = 24;
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
    frames: FrameReader,
    /// Whether a head continues in the next frame.
    in_block: bool,
}

impl FrameTracker {
    pub(super) fn new() -> Self {
        Self {
            preface: PREFACE,
            frames: FrameReader::default(),
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
        while let Some(piece) = self.frames.next(&mut bytes) {
            if piece.is_last && matches!(piece.kind, HEADERS | CONTINUATION) {
                self.in_block = piece.flags & END_HEADERS == 0;
            }
            was_complete |= !self.is_incomplete();
        }
        was_complete || !self.is_incomplete()
    }

    /// Returns whether a head, or a frame other than `DATA`, is incomplete.
    pub(super) fn is_incomplete(&self) -> bool {
        let is_data = self.frames.kind() == Some(DATA);
        self.in_block || (self.frames.is_within_frame() && !is_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_HEADER: usize = 9;

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
