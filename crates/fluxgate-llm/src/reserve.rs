//! How tokens are bounded before they are known, and how those that were used are counted.

use std::num::NonZeroU32;

/// How tokens are bounded before they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// How many bytes of text make a token at least. The fewer, the larger the bound; English
    /// has about four.
    pub prompt_bytes_per_token: NonZeroU32,
    /// The largest completion of a request that states none.
    pub default_max_tokens: u64,
}

impl Reserve {
    /// Returns the number of tokens that `bytes` bytes of text count as.
    pub(crate) fn tokens_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.prompt_bytes_per_token.get().into())
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self {
            prompt_bytes_per_token: const { NonZeroU32::new(3).expect("3 is not 0") },
            default_max_tokens: 4096,
        }
    }
}

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

/// The tokens that a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// All tokens, as the upstream adds them up, and at least the sum of both.
    pub total_tokens: u64,
    /// Whether the upstream reported the numbers. If not, the completion is the text that was
    /// seen, and the prompt is its bound.
    pub is_reported: bool,
}
