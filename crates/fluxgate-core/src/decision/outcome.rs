//! The outcome of a decision, and waits that are refused.

use std::fmt;

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
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

/// Why a request was denied although its rules allow requests to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRefusal {
    /// It would have had to wait longer than `max_wait`.
    TooLong,
    /// Too many requests are waiting already, in this process (`max_concurrent_waits`) or in all
    /// processes together (`max_cluster_waits`).
    TooMany,
}

impl WaitRefusal {
    /// Both reasons, in declaration order.
    pub const ALL: [Self; 2] = [Self::TooLong, Self::TooMany];

    /// Returns its name in logs, metrics and explanations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::TooMany => "too_many",
        }
    }
}

/// What is known about a wait in addition to the verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitStatus {
    /// Nothing more: the verdicts show whether a wait was refused.
    #[default]
    None,
    /// The caller asked for a decision without a wait.
    NotRequested,
    /// The wait was refused after the decision.
    Refused(WaitRefusal),
}
