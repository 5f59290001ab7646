//! Redacts the API keys in rules: the identities of their overrides.

use fluxgate_core::internals::yaml::{Node, Value};

use crate::config::tree;

/// Returns the rule sets with a placeholder for each API key. The placeholders differ,
/// because an identity cannot have two overrides.
pub(super) fn api_keys(rule_sets: &Node) -> Node {
    let mut rule_sets = rule_sets.clone();
    if let Value::Map(sets) = &mut rule_sets.value {
        for (_, set) in sets {
            let rules = child_mut(set, "rules");
            if let Some(Value::List(rules)) = rules.map(|rules| &mut rules.value) {
                rules.iter_mut().for_each(redact_rule);
            }
        }
    }
    rule_sets
}

fn redact_rule(rule: &mut Node) {
    let is = |node: &Node, name| node.as_text() == Some(name);
    // Which parts of an identity are API keys.
    let secret: Vec<bool> = match tree::child(rule, "key").map(|key| &key.value) {
        Some(Value::List(parts)) => parts.iter().map(|part| is(part, "api_key")).collect(),
        _ => {
            let scope = tree::child(rule, "scope");
            vec![scope.is_some_and(|scope| is(scope, "per_api_key"))]
        }
    };
    let overrides = child_mut(rule, "overrides");
    let Some(Value::List(overrides)) = overrides.map(|overrides| &mut overrides.value) else {
        return;
    };
    for (number, entry) in overrides.iter_mut().enumerate() {
        let Some(identity) = child_mut(entry, "identity") else {
            continue;
        };
        let values = match &mut identity.value {
            Value::List(values) => &mut values[..],
            _ => std::slice::from_mut(identity),
        };
        for (value, secret) in values.iter_mut().zip(&secret) {
            if *secret {
                value.value = Value::Quoted(format!("(hidden {number})"));
            }
        }
    }
}

fn child_mut<'n>(node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
    let Value::Map(pairs) = &mut node.value else {
        return None;
    };
    let found = pairs
        .iter_mut()
        .find(|(key, _)| key.as_text() == Some(name));
    found.map(|(_, value)| value)
}
