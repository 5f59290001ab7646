//! Rules: from what people write, in Rust or in YAML, to a form that decisions can use.

mod action;
mod active;
mod active_rule;
mod build;
mod cost;
mod diff;
mod fault;
mod names;
#[cfg(feature = "yaml")]
mod read;
mod rollout;
mod rule;
mod set;
#[cfg(feature = "yaml")]
pub mod values;
mod warning;
mod write;

pub use action::RuleAction;
pub use active::ActiveRuleSet;
pub use active_rule::ActiveRule;
pub(crate) use active_rule::IdentitySubject;
pub use build::RuleSetBuilder;
pub use cost::{Cost, Tokens};
pub use diff::{FieldChange, RuleChange, RuleChangeKind};
pub use fault::{InvalidRules, RuleFault};
#[cfg(feature = "yaml")]
pub use read::RulesError;
pub use rollout::{Rollout, RolloutError};
pub use rule::{OnError, Rule, RuleMode};
pub use set::{OnMissingRuleSet, RuleOptions, RuleSet, RuleSets};
pub use warning::{RequestSource, RuleWarning};
