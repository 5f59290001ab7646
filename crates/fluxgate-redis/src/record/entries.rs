//! What the record holds.

use fluxgate_core::Outcome;

use super::keys::RecordedRule;

/// A count of one rule and one outcome in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCount {
    /// The rule.
    pub rule: RecordedRule,
    /// The outcome.
    pub outcome: Outcome,
    /// The number of the step since 1970.
    pub at: u64,
    /// How many decisions there were.
    pub count: u64,
}

/// The denials of one identity by one rule in one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDenial {
    /// An id of the identity, the same for all instances.
    pub id: String,
    /// How many there were.
    pub count: u64,
    /// When the first was, in milliseconds since 1970.
    pub first_ms: u64,
    /// When the last was.
    pub last_ms: u64,
    /// What else the writer of the last knows.
    pub text: String,
}

/// A minute and a rule with denials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DenialBlock {
    /// The number of the minute since 1970.
    pub minute: u64,
    /// The rule.
    pub rule: RecordedRule,
}

impl DenialBlock {
    /// Reads the name in an index.
    pub(super) fn parse(member: &str) -> Option<Self> {
        let (minute, rule) = member.split_once(' ')?;
        Some(Self {
            minute: minute.parse().ok()?,
            rule: RecordedRule::parse(rule)?,
        })
    }
}

/// A change of a rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedChange {
    /// When it was, in milliseconds since 1970.
    pub at_ms: u64,
    /// The name of the rule set.
    pub rule_set: String,
    /// A hash of the rule set after the change; empty if it was removed.
    pub revision: String,
    /// Who made it; empty if that is not known.
    pub who: String,
}
