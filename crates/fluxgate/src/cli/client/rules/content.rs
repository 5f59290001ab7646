//! The content of a rule set: as it is stored, and compiled.

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Fault, Node, Value};

use crate::config::child;
use crate::reload::{check_set, parse_json};

/// The content of a valid rule set.
#[derive(Debug)]
pub(super) struct SetContent {
    /// As it is stored.
    pub(super) json: String,
    pub(super) node: Node,
    /// Only this set.
    pub(super) rules: RuleSets,
}

impl SetContent {
    /// Reads a set. The options of the service do not matter for a comparison.
    pub(super) fn read(name: &str, json: String) -> Result<Self, Vec<Fault>> {
        let node = parse_json(&json).map_err(|fault| vec![fault])?;
        let rules = check_set(name, node.clone(), RuleOptions::default())?;
        Ok(Self { json, node, rules })
    }

    /// Returns the ids of all rules, including disabled ones.
    pub(super) fn rule_ids(&self) -> Vec<&str> {
        let rules = match child(&self.node, "rules").map(|rules| &rules.value) {
            Some(Value::List(rules)) => &rules[..],
            _ => &[],
        };
        let ids = rules.iter().map(|rule| child(rule, "id")?.as_text());
        ids.flatten().collect()
    }

    /// Returns the fields of a rule that have no default, with their values as YAML.
    pub(super) fn fields(&self, rule: &str) -> Vec<(String, String)> {
        let set = self.rules.only();
        set.map_or_else(Vec::new, |set| set.written_fields(rule))
    }
}
