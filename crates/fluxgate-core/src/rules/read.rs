//! Reads rule files. A reader checks the form of a file: fields, types and names. Then the
//! rules are built like those of a program, and the faults of both are reported at their
//! positions.

mod bands;
mod request;
mod rule;

use super::build::RuleSetBuilder;
use super::fault::{RuleFault, Step};
use super::rule::List;
use super::set::{RuleOptions, RuleSet, RuleSets};
use super::values;
use super::warning::RuleWarning;
use crate::yaml::{Fault, Faults, Node, Position, Value};

/// All faults of a rule file; displayed as one line for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct RulesError(pub Vec<Fault>);

fn lines(faults: &[Fault]) -> String {
    let lines: Vec<_> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}

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
        Self::from_node_with(root, RuleOptions::default())
    }

    /// Reads a rule file that is already parsed. `options` apply where it says nothing else.
    pub fn from_node_with(root: &Node, options: RuleOptions) -> Result<Self, RulesError> {
        let mut faults = Faults::default();
        let sets = Self::read_file(root, options, &mut faults);
        if faults.count() > 0 {
            return Err(RulesError(faults.into_sorted()));
        }
        Ok(sets)
    }

    fn read_file(root: &Node, mut options: RuleOptions, faults: &mut Faults) -> Self {
        let [rule_sets, on_missing, keys] = root.fields(
            "a rule file",
            ["rule_sets", "on_missing_rule_set", "keys"],
            faults,
        );
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

    /// Reads one rule set, which is stored by itself.
    pub fn read_set(name: &str, set: Node, options: RuleOptions) -> Result<Self, RulesError> {
        let position = set.position;
        let key = Node {
            value: Value::Quoted(name.into()),
            position,
        };
        let sets = Node {
            value: Value::Map(vec![(key, set)]),
            position,
        };
        let mut faults = Faults::default();
        let rules = Self::read(&sets, options, &mut faults);
        if faults.count() > 0 {
            return Err(RulesError(faults.into_sorted()));
        }
        Ok(rules)
    }

    /// Reads the mapping under `rule_sets`, which may be part of a larger file. The
    /// result must not be used if faults were added.
    pub fn read(rule_sets: &Node, options: RuleOptions, faults: &mut Faults) -> Self {
        let mut sets = Vec::new();
        let mut rules = 0;
        for (name, key, node) in rule_sets.map("`rule_sets`", faults) {
            let before = faults.count();
            let mut set = read_set(name, node, options, faults);
            set.first_number = options.is_trial.then_some(rules);
            rules += set.rules.len();
            match set.build() {
                Ok(set) if faults.count() == before => sets.push(set),
                Ok(_) => {}
                Err(invalid) => {
                    for fault in invalid.0 {
                        report(fault, key, node, faults);
                    }
                }
            }
        }
        Self::from_iter(sets).with_on_missing(options.on_missing_rule_set)
    }
}

fn read_set(name: &str, node: &Node, options: RuleOptions, faults: &mut Faults) -> RuleSetBuilder {
    let mut set = RuleSet::builder(name);
    set.ipv6_prefix = options.ipv6_prefix;
    let fields = ["on_error", "lists", "rules"];
    let [on_error, lists, rules] = node.fields("a rule set", fields, faults);
    let on_error = on_error.and_then(|node| values::on_error(node, faults));
    set.on_error = on_error.unwrap_or_default();
    set.lists = lists.map_or(Vec::new(), |node| read_lists(node, faults));
    let rules = rules.map_or(&[][..], |node| node.list("`rules`", faults));
    set.rules = rules.iter().map(|node| rule::read(node, faults)).collect();
    set
}

fn read_lists(node: &Node, faults: &mut Faults) -> Vec<List> {
    let mut lists = Vec::new();
    for (name, _, values) in node.map("`lists`", faults) {
        let nodes = values.list(&format!("list `{name}`"), faults).iter();
        let texts = nodes
            .map(|node| node.text("a value of a list", faults))
            .map(|text| text.unwrap_or_default().into());
        lists.push(List::new(name, texts.collect()));
    }
    lists
}

/// Adds a fault of a built rule set at its position in the file, unless the reader has
/// reported one at the same field.
fn report(fault: RuleFault, key: &Node, set: &Node, faults: &mut Faults) {
    let (position, field) = locate(&fault.path, key, set);
    if field.is_none_or(|field| !has_fault(field, faults)) {
        faults.add(position, fault.message);
    }
}

/// Returns the position of a field of a rule set, and its value if it has one.
fn locate<'n>(path: &[Step], key: &'n Node, set: &'n Node) -> (Position, Option<&'n Node>) {
    if path.is_empty() {
        return (key.position, None);
    }
    let mut node = set;
    for (index, step) in path.iter().enumerate() {
        match (step, &node.value) {
            (Step::Field(name), Value::Map(pairs)) => match field(pairs, name) {
                Some((_, value)) => node = value,
                // The field is missing: the fault belongs to what lacks it.
                None => return (node.position, None),
            },
            (Step::Index(index), Value::List(items)) if *index < items.len() => {
                node = &items[*index];
            }
            (Step::Name(name), Value::Map(pairs)) => {
                let Some((key, value)) = field(pairs, name) else {
                    return (node.position, None);
                };
                if index + 1 == path.len() {
                    return (key.position, Some(value));
                }
                node = value;
            }
            // A band in its short form, or not of the type that the reader requires, which it
            // has reported.
            _ => break,
        }
    }
    (node.position, Some(node))
}

impl RuleWarning {
    /// Returns its position in the mapping under `rule_sets`.
    pub fn position_in(&self, rule_sets: &Node) -> Position {
        let RuleFault { rule_set, path, .. } = &self.0;
        let Value::Map(pairs) = &rule_sets.value else {
            return rule_sets.position;
        };
        match field(pairs, rule_set) {
            Some((key, set)) => locate(path, key, set).0,
            None => rule_sets.position,
        }
    }
}

fn field<'n>(pairs: &'n [(Node, Node)], name: &str) -> Option<&'n (Node, Node)> {
    let mut pairs = pairs.iter();
    pairs.find(|(key, value)| key.as_text() == Some(name) && !value.is_null())
}

/// Returns whether a fault at or below a node was reported.
fn has_fault(node: &Node, faults: &Faults) -> bool {
    let is_below = |node: &Node| has_fault(node, faults);
    faults.is_reported(node.position)
        || match &node.value {
            Value::Plain(_) | Value::Quoted(_) => false,
            Value::List(items) => items.iter().any(is_below),
            Value::Map(pairs) => pairs.iter().any(|(k, v)| is_below(k) || is_below(v)),
        }
}
