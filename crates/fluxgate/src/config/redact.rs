//! Redacts the API keys in rules: the identities of their overrides, the keys that they match, and
//! the lists of keys. A hash of a key is no secret.

use fluxgate_core::yaml::{Node, Value};

use super::tree::{child, child_mut};

/// Returns the rule sets with a placeholder for each API key. The placeholders differ,
/// because an identity cannot have two overrides.
pub(super) fn api_keys(rule_sets: &Node) -> Node {
    let mut rule_sets = rule_sets.clone();
    if let Value::Map(sets) = &mut rule_sets.value {
        for (_, set) in sets {
            let mut lists = Vec::new();
            let rules = child_mut(set, "rules");
            if let Some(Value::List(rules)) = rules.map(|rules| &mut rules.value) {
                for rule in rules {
                    redact_rule(rule);
                    redact_match(rule, &mut lists);
                }
            }
            for name in lists {
                let list = child_mut(set, "lists").and_then(|lists| child_mut(lists, &name));
                if let Some(list) = list {
                    redact_keys(list);
                }
            }
        }
    }
    rule_sets
}

fn redact_rule(rule: &mut Node) {
    let is = |node: &Node, name| node.as_text() == Some(name);
    // Which parts of an identity are API keys.
    let secret: Vec<bool> = match child(rule, "key").map(|key| &key.value) {
        Some(Value::List(parts)) => parts.iter().map(|part| is(part, "api_key")).collect(),
        _ => {
            let scope = child(rule, "scope");
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

/// Redacts the keys that a rule matches, and adds the lists that it compares them with.
fn redact_match(rule: &mut Node, lists: &mut Vec<String>) {
    let keys = child_mut(rule, "match").and_then(|matches| child_mut(matches, "api_key"));
    let Some(keys) = keys else { return };
    for list in ["in", "not_in"] {
        let name = child(keys, list).and_then(Node::as_text);
        lists.extend(name.map(str::to_owned));
    }
    match child_mut(keys, "not") {
        Some(keys) => redact_keys(keys),
        None => redact_keys(keys),
    }
}

/// Redacts one or more keys that are not written as their hashes.
fn redact_keys(keys: &mut Node) {
    let keys = match &mut keys.value {
        Value::List(keys) => &mut keys[..],
        Value::Map(_) => return,
        _ => std::slice::from_mut(keys),
    };
    for (number, key) in keys.iter_mut().enumerate() {
        let is_hash = key.as_text().is_some_and(|key| key.starts_with("sha256:"));
        if !is_hash {
            key.value = Value::Quoted(format!("(hidden {number})"));
        }
    }
}
