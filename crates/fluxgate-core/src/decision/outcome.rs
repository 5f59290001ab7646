//! The outcome of a decision.

use std::fmt;

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Every rule lets the request pass.
    Allowed,
    /// A band denies the request for now.
    Denied,
    /// The request can never pass.
    Never,
    /// A rule with [`RuleAction::Deny`](crate::RuleAction::Deny) matches.
    Forbidden,
    /// A rule with [`RuleAction::Allow`](crate::RuleAction::Allow) matches.
    Exempt,
    /// The request passes, but a shadow rule would have denied it.
    ShadowDenied,
    /// No rule matches.
    NoRule,
    /// The store failed, and the rule set then allows requests.
    FailedOpen,
    /// The store failed, and the rule set then denies requests.
    FailedClosed,
    /// The store failed, and the embedded store decided.
    Fallback,
}

impl Outcome {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::Allowed,
        Self::Denied,
        Self::Never,
        Self::Forbidden,
        Self::Exempt,
        Self::ShadowDenied,
        Self::NoRule,
        Self::FailedOpen,
        Self::FailedClosed,
        Self::Fallback,
    ];

    /// Returns whether a request that passes with this outcome is charged.
    pub(crate) const fn charges(self) -> bool {
        matches!(self, Self::Allowed | Self::ShadowDenied | Self::Fallback)
    }

    /// Returns whether the store failed.
    pub const fn is_store_failure(self) -> bool {
        matches!(self, Self::FailedOpen | Self::FailedClosed | Self::Fallback)
    }

    /// Returns its name in all interfaces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Never => "never",
            Self::Forbidden => "forbidden",
            Self::Exempt => "exempt",
            Self::ShadowDenied => "shadow_denied",
            Self::NoRule => "no_rule",
            Self::FailedOpen => "failed_open",
            Self::FailedClosed => "failed_closed",
            Self::Fallback => "fallback",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
