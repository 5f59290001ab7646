//! Calls that cannot be answered.

use crate::key::IdentityError;
use crate::store::StoreError;

/// Why a call about a rule cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// There is no such rule set.
    #[error("there is no rule set `{0}`")]
    UnknownRuleSet(String),
    /// There is no such rule, or it is not enabled.
    #[error("there is no rule `{rule}` in rule set `{rule_set}`")]
    UnknownRule {
        /// The set.
        rule_set: String,
        /// The rule.
        rule: String,
    },
    /// The identity does not fit the rule's key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
