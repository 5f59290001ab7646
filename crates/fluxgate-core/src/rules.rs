//! Rules: from the YAML that people write to a form that decisions can use.

mod active;
mod parse;
mod rule;
mod set;
pub mod values;

pub use active::ActiveRuleSet;
pub use rule::{CostSource, OnError, Rule, RuleMode};
pub use set::{OnMissingRuleSet, RuleOptions, RuleSet, RuleSets, RulesError};
