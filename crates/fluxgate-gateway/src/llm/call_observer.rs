//! What the service learns of calls to language models.

use std::fmt;

/// Records calls to language models as they are settled.
pub trait CallObserver: fmt::Debug + Send + Sync {
    /// Records a call with the tokens that it is charged.
    fn call_settled(&self, end: CallEnd, prompt_tokens: u64, completion_tokens: u64);
}

/// How the tokens of a call became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The answer reported them.
    Reported,
    /// They are what was seen of the answer and, for the prompt, its bound.
    Estimated,
    /// There was no answer, or it was an error: no tokens are charged.
    Failed,
}

impl CallEnd {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reported, Self::Estimated, Self::Failed];

    /// Returns the name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Estimated => "estimated",
            Self::Failed => "failed",
        }
    }
}
