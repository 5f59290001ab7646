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

fn unknown_rule(set: &RuleSet, id: &str) -> LimiterError {
    LimiterError::UnknownRule {
        rule_set: set.name().into(),
        rule: id.into(),
    }
}

/// Returns an error if a rule decides by itself.
fn require_limit(set: &RuleSet, rule: &ActiveRule) -> Result<(), LimiterError> {
    if rule.action().decides() {
        return Err(LimiterError::NotALimit {
            rule_set: set.name().into(),
            rule: rule.id().into(),
            action: rule.action().name(),
        });
    }
    Ok(())
}

/// Returns a rule that counts.
pub(super) fn find_rule<'s>(set: &'s RuleSet, id: &str) -> Result<&'s ActiveRule, LimiterError> {
    find_indexed_rule(set, id).map(|(_, rule)| rule)
}

/// Returns a rule, and its index in the order of evaluation.
pub(super) fn find_indexed_rule<'s>(
    set: &'s RuleSet,
    id: &str,
) -> Result<(usize, &'s ActiveRule), LimiterError> {
    let mut rules = set.rules().iter().enumerate();
    let found = rules.find(|(_, rule)| rule.id() == id);
    let (index, rule) = found.ok_or_else(|| unknown_rule(set, id))?;
    require_limit(set, rule)?;
    Ok((index, rule))
}
