//! The names that decisions are counted under.

/// The names of a rule set and of a rule in it. Both are empty for decisions without a rule set,
/// the second for those without a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RuleNames {
    pub(crate) rule_set: Box<str>,
    pub(crate) rule: Box<str>,
}
