//! How tokens are bounded before they are known.

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
