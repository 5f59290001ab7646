//! The units that a request costs.

use crate::context::RequestContext;
use crate::limit::MAX_UNITS;

/// The units that a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cost {
    /// The same for every request.
    Fixed(u64),
    /// The number in a header. Anything but a whole number from 1 counts as 1.
    Header(Box<str>),
    /// The number in an attribute. Anything but a whole number from 1 counts as 1.
    Attribute(Box<str>),
    /// The tokens of a request to a language model, as the gateway reads them. Elsewhere they
    /// are the attribute of this name, such as `llm:total_tokens`.
    Tokens(Tokens),
}

/// The tokens of a request to a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Those of the prompt and of the completion.
    Total,
    /// Those of the prompt.
    Prompt,
    /// Those of the completion.
    Completion,
}

impl Tokens {
    /// All of them, by the attribute that holds their number.
    pub const NAMES: [(&str, Self); 3] = [
        ("llm:total_tokens", Self::Total),
        ("llm:prompt_tokens", Self::Prompt),
        ("llm:completion_tokens", Self::Completion),
    ];

    /// Returns the name of the attribute that holds their number.
    pub const fn attribute(self) -> &'static str {
        match self {
            Self::Total => "llm:total_tokens",
            Self::Prompt => "llm:prompt_tokens",
            Self::Completion => "llm:completion_tokens",
        }
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl From<u64> for Cost {
    fn from(units: u64) -> Self {
        Self::Fixed(units)
    }
}

impl Cost {
    /// The message about a cost that is not one.
    pub(super) fn expected() -> String {
        format!(
            "`cost` must be a whole number from 1 to {MAX_UNITS}, header:NAME, attr:NAME, \
             llm:total_tokens, llm:prompt_tokens or llm:completion_tokens"
        )
    }

    /// Returns the attribute that it is the number in, if it is.
    pub(crate) fn attribute(&self) -> Option<&str> {
        match self {
            Self::Attribute(name) => Some(name),
            Self::Tokens(tokens) => Some(tokens.attribute()),
            Self::Fixed(_) | Self::Header(_) => None,
        }
    }

    /// Returns the cost of `context`: the one it names itself, or that of this source.
    pub(crate) fn cost_of(&self, context: &RequestContext<'_>) -> u64 {
        if let Some(cost) = context.cost {
            return cost;
        }
        let text = match self {
            Self::Fixed(cost) => return *cost,
            Self::Header(name) => context.header(name),
            Self::Attribute(name) => context.attribute(name),
            Self::Tokens(_) if context.has_no_tokens => return 0,
            Self::Tokens(tokens) => context.attribute(tokens.attribute()),
        };
        text.and_then(whole_number).map_or(1, |cost| cost.max(1))
    }
}

/// Parses decimal digits. A number that overflows becomes the largest one.
fn whole_number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}
