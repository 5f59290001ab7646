//! Why calls about rules fail.

use crate::key::IdentityError;
use crate::rules::{ActiveRule, RuleSet};
use crate::store::StoreError;

/// Why a call about a rule failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// The rule set does not exist.
    #[error("there is no rule set `{0}`")]
    UnknownRuleSet(String),
    /// The rule does not exist, or it is not enabled.
    #[error("there is no rule `{rule}` in rule set `{rule_set}`")]
    UnknownRule {
        /// The set.
        rule_set: String,
        /// The rule.
        rule: String,
    },
    /// The rule decides by itself, so no identity has a state in it.
    #[error("rule `{rule}` of rule set `{rule_set}` counts nothing: it has `action: {action}`")]
    NotALimit {
        /// The set.
        rule_set: String,
        /// The rule.
        rule: String,
        /// What it does.
        action: &'static str,
    },
    /// The identity does not match the rule's key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) fn unknown_rule(set: &RuleSet, id: &str) -> LimiterError {
    LimiterError::UnknownRule {
        rule_set: set.name().into(),
        rule: id.into(),
    }
}

/// Returns an error if a rule decides by itself.
pub(super) fn require_limit(set: &RuleSet, rule: &ActiveRule) -> Result<(), LimiterError> {
    if rule.action().decides() {
        return Err(LimiterError::NotALimit {
            rule_set: set.name().into(),
            rule: rule.id().into(),
            action: rule.action().name(),
        });
    }
    Ok(())
}
