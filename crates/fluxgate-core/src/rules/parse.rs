//! From a YAML tree to rules, with every fault reported at its position.

mod bands;
mod request;
mod rule;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::rule::{CostSource, Rule};
use super::set::{RuleOptions, RuleSet, RuleSets, RulesError};
use super::values;
use crate::key::KeyPart;
use crate::limit::Algorithm;
use crate::matcher::{Conditions, Matcher};
use crate::yaml::{Faults, Node, Position};

/// The most bytes of a name or an id.
const MAX_NAME: usize = 200;

impl RuleSets {
    /// Reads a rule file: a YAML or JSON mapping with `rule_sets` and optionally
    /// `on_missing_rule_set` and `keys: { ipv6_prefix }`.
    pub fn from_yaml(text: &str) -> Result<Self, RulesError> {
        match Node::parse(text) {
            Ok(root) => Self::from_node(&root),
            Err(fault) => Err(RulesError(vec![fault])),
        }
    }

    /// Reads a rule file that is already parsed.
    pub fn from_node(root: &Node) -> Result<Self, RulesError> {
        let mut faults = Faults::default();
        let sets = Self::read_file(root, &mut faults);
        if faults.count() > 0 {
            return Err(RulesError(faults.into_sorted()));
        }
        Ok(sets)
    }

    fn read_file(root: &Node, faults: &mut Faults) -> Self {
        let [rule_sets, on_missing, keys] = root.fields(
            "a rule file",
            ["rule_sets", "on_missing_rule_set", "keys"],
            faults,
        );
        let mut options = RuleOptions::default();
        if let Some(node) = on_missing {
            options.on_missing_rule_set =
                values::on_missing_rule_set(node, faults).unwrap_or_default();
        }
        if let Some(node) = keys {
            let [prefix] = node.fields("`keys`", ["ipv6_prefix"], faults);
            if let Some(prefix) = prefix.and_then(|node| values::ipv6_prefix(node, faults)) {
                options.ipv6_prefix = prefix;
            }
        }
        match rule_sets {
            Some(node) => Self::read(node, options, faults),
            None => {
                // A root that is not a mapping has been reported.
                if faults.count() == 0 {
                    faults.add(root.position, "`rule_sets` is missing");
                }
                Self::default()
            }
        }
    }

    /// Reads the mapping under `rule_sets`, which may be part of a larger file. The
    /// result must not be used if faults were added.
    pub fn read(rule_sets: &Node, options: RuleOptions, faults: &mut Faults) -> Self {
        let mut sets = HashMap::new();
        for (name, key, value) in rule_sets.map("`rule_sets`", faults) {
            if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
                faults.add(
                    key.position,
                    format!(
                        "a rule set's name must have 1 to {MAX_NAME} bytes and no control character"
                    ),
                );
            }
            let set = rule_set(name, value, options, faults);
            sets.insert(name.into(), Arc::new(set));
        }
        Self {
            sets,
            on_missing: options.on_missing_rule_set,
        }
    }
}

fn rule_set(name: &str, node: &Node, options: RuleOptions, faults: &mut Faults) -> RuleSet {
    let [on_error, rules] = node.fields("a rule set", ["on_error", "rules"], faults);
    let on_error = on_error.and_then(|node| values::on_error(node, faults));
    if rules.is_none() && node.is_map() {
        faults.add(node.position, format!("rule set `{name}` has no `rules`"));
    }
    let nodes = rules.map_or(&[][..], |node| node.list("`rules`", faults));
    let mut ids = HashSet::new();
    let mut enabled = Vec::new();
    for node in nodes {
        let mut reader = RuleReader {
            set: name,
            options,
            faults,
        };
        let Some(parsed) = reader.rule(node, &mut ids) else {
            continue;
        };
        if parsed.enabled {
            enabled.push((parsed.rule, parsed.conditions));
        }
    }
    // Stable: rules of one priority stay in the order of the file.
    enabled.sort_by_key(|(rule, _)| rule.priority);
    let (rules, conditions): (Vec<_>, Vec<_>) = enabled.into_iter().unzip();
    let key_header_names: BTreeSet<_> = key_headers(&rules).cloned().collect();
    RuleSet {
        name: name.into(),
        on_error: on_error.unwrap_or_default(),
        header_names: header_names(&rules, &conditions),
        key_header_names: key_header_names.into_iter().collect(),
        delays: rules.iter().any(Rule::delays),
        rules,
        matcher: Matcher::new(conditions),
        ipv6_prefix: options.ipv6_prefix,
    }
}

/// Returns the headers that any rule uses, each once.
fn header_names(rules: &[Rule], conditions: &[Conditions]) -> Box<[Box<str>]> {
    let matched = conditions.iter().flat_map(|conditions| &conditions.headers);
    let costs = rules.iter().filter_map(|rule| match rule.cost() {
        CostSource::Header(name) => Some(name),
        _ => None,
    });
    let names = matched
        .map(|(name, _)| name)
        .chain(key_headers(rules))
        .chain(costs);
    let names: BTreeSet<_> = names.cloned().collect();
    names.into_iter().collect()
}

/// Returns the headers that are part of a rule's key.
fn key_headers(rules: &[Rule]) -> impl Iterator<Item = &Box<str>> {
    let parts = rules.iter().flat_map(Rule::key);
    parts.filter_map(|part| match part {
        KeyPart::Header(name) => Some(name),
        _ => None,
    })
}

/// Reads the rules of one set.
struct RuleReader<'a> {
    set: &'a str,
    options: RuleOptions,
    faults: &'a mut Faults,
}

struct ParsedRule {
    rule: Rule,
    conditions: Conditions,
    enabled: bool,
}

/// What all bands of a rule have in common.
struct BandStyle {
    /// `None` if the name is unknown, which has been reported.
    algorithm: Option<Algorithm>,
    shape: bool,
    shape_at: Position,
    max_wait: Option<Duration>,
}
