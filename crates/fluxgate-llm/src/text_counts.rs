//! The amount of text in an answer.

use crate::reserve::Reserve;

/// Counts of the text in an answer: that of all choices, with reasoning and the arguments of
/// tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextCounts {
    /// Pieces that have text. A piece of a stream has at least one token.
    pieces: u64,
    /// Bytes of the decoded text.
    bytes: u64,
}

impl TextCounts {
    /// Adds a piece, unless it has no text.
    pub(crate) fn add_piece(&mut self, bytes: u64) {
        self.pieces += u64::from(bytes > 0);
        self.bytes += bytes;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.pieces += other.pieces;
        self.bytes += other.bytes;
    }

    /// Returns the larger of both counts of the same text, for pieces and bytes separately.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            pieces: self.pieces.max(other.pieces),
            bytes: self.bytes.max(other.bytes),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// Returns the number of tokens that the text counts as.
    pub(crate) fn tokens(&self, reserve: &Reserve) -> u64 {
        self.pieces.max(reserve.tokens_of(self.bytes))
    }
}
