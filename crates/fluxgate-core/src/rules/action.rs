//! What a rule does with the requests that it matches.

/// What a rule does with the requests that it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleAction {
    /// Counts them, and denies what exceeds its bands.
    #[default]
    Limit,
    /// Denies them, whatever other rules say.
    Deny {
        /// The status of the response over HTTP: 400 to 499.
        status: u16,
    },
    /// Allows them without counting them, whatever other rules say.
    Allow,
}

impl RuleAction {
    /// The status of a rule that denies, if it names no other.
    pub(super) const DEFAULT_STATUS: u16 = 403;

    /// The statuses that a rule may deny with.
    pub(super) const STATUSES: std::ops::RangeInclusive<u16> = 400..=499;

    /// The actions by their names in rules. A status is a field of its own.
    #[cfg(feature = "yaml")]
    pub(super) const NAMES: [(&str, Self); 3] = [
        ("limit", Self::Limit),
        (
            "deny",
            Self::Deny {
                status: Self::DEFAULT_STATUS,
            },
        ),
        ("allow", Self::Allow),
    ];

    /// Returns its name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Deny { .. } => "deny",
            Self::Allow => "allow",
        }
    }

    /// Returns whether the rule decides by itself, without a limit.
    pub(crate) fn decides(self) -> bool {
        self != Self::Limit
    }
}

/// The message about a field that a rule with this action cannot have.
pub(super) fn misplaced(field: &str, action: RuleAction) -> String {
    let (name, status) = match action {
        RuleAction::Deny { .. } => ("deny", ", `status`"),
        _ => (action.name(), ""),
    };
    format!(
        "a rule with `action: {name}` has no `{field}`: it counts nothing; it may have `id`, \
         `name`, `enabled`, `mode`, `priority`, `match`{status} and `attributes`"
    )
}
