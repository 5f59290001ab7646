//! Edits of a stored rule set.

use fluxgate_core::RuleChange;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Fault, Node, Value};
use fluxgate_http::Problem;
use fluxgate_redis::{MAX_RULE_BYTES, StoredSet, etag_of};
use http::StatusCode;

use super::access::{no_such_rule, no_such_set};
use crate::api::admin::conditions::Condition;
use crate::config::{Deployment, child, child_mut};
use crate::reload::{check_set, parse_json, to_json, unplaced, wrap_in_mapping};

/// An edit. New content has been validated.
#[derive(Debug)]
pub(super) enum Edit {
    /// Replaces the set.
    Replace(Node),
    /// Deletes the set.
    Delete,
    /// Replaces the rule of the same id, or appends one.
    PutRule(Node),
    /// Deletes a rule.
    DeleteRule,
    /// Enables or disables a rule.
    SetEnabled(bool),
}

/// The set or the rule that is edited.
#[derive(Debug)]
pub(super) struct EditTarget {
    pub(super) set: String,
    /// `None` for the whole set.
    pub(super) rule: Option<String>,
}

/// The result of an edit.
#[derive(Debug, Default)]
pub(super) struct EditResult {
    /// The whole set, or `None` to delete it.
    pub(super) set: Option<String>,
    /// The body of the response.
    pub(super) body: Option<String>,
    /// Whether the edit creates the set or the rule.
    pub(super) created: bool,
    /// What it changes.
    pub(super) changes: Vec<RuleChange>,
    /// Warnings about the edited set.
    pub(super) warnings: Vec<Fault>,
}

impl Edit {
    /// Returns its name in the audit log and in the history of the set.
    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::Replace(_) => "put rule set",
            Self::Delete => "delete rule set",
            Self::PutRule(_) => "put rule",
            Self::DeleteRule => "delete rule",
            Self::SetEnabled(true) => "enable rule",
            Self::SetEnabled(false) => "disable rule",
        }
    }

    /// Returns whether the rule is enabled or disabled already, so that nothing needs to be
    /// written.
    pub(super) fn has_no_effect(&self, text: &str, before: Option<&str>) -> bool {
        matches!(self, Self::SetEnabled(_)) && before == Some(&*etag_of(text))
    }

    /// Applies the edit if the condition holds for the edited set or rule.
    pub(super) fn apply(
        &self,
        target: &EditTarget,
        stored: Option<&StoredSet>,
        condition: &Condition,
        options: RuleOptions,
        deployment: &Deployment,
    ) -> Result<EditResult, Problem> {
        let new = self.edit(target, stored, condition, options)?;
        let set = &*target.set;
        // A stored set that is invalid counts as none: it has never been active.
        let compile = |text: Option<&str>| {
            let node = parse_json(text?).ok()?;
            let rules = check_set(set, node.clone(), options).ok()?;
            Some((rules, wrap_in_mapping(set, node)))
        };
        let before = compile(stored.map(|stored| stored.text.as_str()))
            .map(|(rules, _)| rules)
            .unwrap_or_default();
        let after = compile(new.set.as_deref());
        let warnings = after
            .as_ref()
            .map(|(rules, node)| deployment.warnings(rules, node));
        let after = after.map(|(rules, _)| rules).unwrap_or_default();
        Ok(EditResult {
            changes: after.changes_since(&before),
            warnings: warnings.unwrap_or_default(),
            ..new
        })
    }

    /// Returns the new texts, without the changes and warnings.
    fn edit(
        &self,
        target: &EditTarget,
        stored: Option<&StoredSet>,
        condition: &Condition,
        options: RuleOptions,
    ) -> Result<EditResult, Problem> {
        let set = &*target.set;
        let rule = match (self, target.rule.as_deref()) {
            (Self::Replace(new), _) => {
                condition.check(stored.map(|it| it.etag.as_str()))?;
                let text = check_size(to_json(new))?;
                return Ok(EditResult {
                    set: Some(text.clone()),
                    body: Some(text),
                    created: stored.is_none(),
                    ..EditResult::default()
                });
            }
            (Self::Delete, _) | (_, None) => {
                condition.check(stored.map(|it| it.etag.as_str()))?;
                // Without a condition, an entry that exists only in the index is also deleted.
                if stored.is_none() && *condition != Condition::Any {
                    return Err(no_such_set(set));
                }
                return Ok(EditResult::default());
            }
            (_, Some(rule)) => rule,
        };
        let mut rules = EditableRuleSet::read(set, stored)?;
        let now = rules.get(rule).map(|rule| etag_of(&to_json(rule)));
        condition.check(now.as_deref())?;
        if now.is_none() && !matches!(self, Self::PutRule(_)) {
            return Err(no_such_rule(set, rule));
        }
        let body = match self {
            Self::PutRule(new) => rules.put(rule, new.clone()),
            Self::SetEnabled(is_enabled) => rules.set_enabled(rule, *is_enabled),
            _ => rules.remove(rule),
        };
        let text = to_json(&rules.0);
        validate_edited(set, &text, options)?;
        Ok(EditResult {
            set: Some(check_size(text)?),
            body,
            created: now.is_none(),
            ..EditResult::default()
        })
    }
}

/// A stored set, with access to its rules.
#[derive(Debug)]
pub(super) struct EditableRuleSet(Node);

impl EditableRuleSet {
    pub(super) fn read(set: &str, stored: Option<&StoredSet>) -> Result<Self, Problem> {
        let stored = stored.ok_or_else(|| no_such_set(set))?;
        let rules = parse_json(&stored.text).ok().map(Self);
        rules.filter(|rules| rules.list().is_some()).ok_or_else(|| {
            let detail = format!("the stored rule set `{set}` is invalid; replace it");
            Problem::new(StatusCode::CONFLICT, detail)
        })
    }

    /// Returns the rule with this id.
    pub(super) fn get(&self, id: &str) -> Option<&Node> {
        self.list()?.iter().find(|rule| has_id(rule, id))
    }

    fn list(&self) -> Option<&Vec<Node>> {
        match &child(&self.0, "rules")?.value {
            Value::List(rules) => Some(rules),
            _ => None,
        }
    }

    fn list_mut(&mut self) -> Option<&mut Vec<Node>> {
        match &mut child_mut(&mut self.0, "rules")?.value {
            Value::List(rules) => Some(rules),
            _ => None,
        }
    }

    /// Replaces the rule with the same id, or appends one.
    fn put(&mut self, id: &str, new: Node) -> Option<String> {
        let body = to_json(&new);
        let rules = self.list_mut()?;
        match rules.iter_mut().find(|rule| has_id(rule, id)) {
            Some(old) => *old = new,
            None => rules.push(new),
        }
        Some(body)
    }

    /// Enables or disables a rule.
    fn set_enabled(&mut self, id: &str, is_enabled: bool) -> Option<String> {
        let mut rules = self.list_mut()?.iter_mut();
        let rule = rules.find(|rule| has_id(rule, id))?;
        let value = unplaced(Value::Plain(is_enabled.to_string()));
        match child_mut(rule, "enabled") {
            Some(old) => *old = value,
            None => add_field(rule, "enabled", value),
        }
        Some(to_json(rule))
    }

    fn remove(&mut self, id: &str) -> Option<String> {
        self.list_mut()?.retain(|rule| !has_id(rule, id));
        None
    }
}

fn has_id(rule: &Node, id: &str) -> bool {
    child(rule, "id").and_then(Node::as_text) == Some(id)
}

fn text_node(text: &str) -> Node {
    unplaced(Value::Quoted(text.into()))
}

fn add_field(node: &mut Node, name: &str, value: Node) {
    if let Value::Map(pairs) = &mut node.value {
        pairs.push((text_node(name), value));
    }
}

/// Parses and validates the rule set in a body.
pub(super) fn parse_set(set: &str, body: &[u8], options: RuleOptions) -> Result<Node, Problem> {
    let node = parse(body)?;
    check_set(set, node.clone(), options).map_err(invalid_rules)?;
    Ok(node)
}

/// Parses and validates the rule set in a body of YAML.
pub(super) fn parse_yaml_set(
    set: &str,
    body: &[u8],
    options: RuleOptions,
) -> Result<Node, Problem> {
    let text =
        std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    let node = Node::parse_request(text).map_err(|fault| invalid_rules(vec![fault]))?;
    // All instances read the stored set as JSON, so it must also be valid as JSON.
    let stored = parse_json(&to_json(&node)).map_err(|fault| invalid_rules(vec![fault]))?;
    check_set(set, node, options).map_err(invalid_rules)?;
    check_set(set, stored.clone(), options).map_err(invalid_rules)?;
    Ok(stored)
}

/// Returns a stored set as YAML. An invalid set is returned as JSON, which is also YAML.
pub(super) fn yaml_of(set: &str, text: &str, options: RuleOptions) -> String {
    let rules = parse_json(text)
        .ok()
        .and_then(|node| check_set(set, node, options).ok());
    let Some(rules) = rules else {
        return text.to_owned();
    };
    // The set is indented below its name, in a document with settings of all sets before.
    let document = rules.to_yaml();
    let lines = document
        .lines()
        .skip_while(|line| *line != "rule_sets:")
        .skip(2)
        .map(|line| line.get(4..).unwrap_or_default());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Parses and validates the rule in a body. Its id must match the path.
pub(super) fn parse_rule(
    set: &str,
    id: &str,
    body: &[u8],
    options: RuleOptions,
) -> Result<Node, Problem> {
    let mut node = parse(body)?;
    match child(&node, "id").map(Node::as_text) {
        Some(Some(given)) if given == id => {}
        Some(Some(given)) => {
            return Err(Problem::bad_request(format!(
                "`id` is `{given}`, but the path names `{id}`"
            )));
        }
        Some(None) => return Err(Problem::bad_request("`id` must be a text")),
        None => add_field(&mut node, "id", text_node(id)),
    }
    let position = node.position;
    let placed = |value| Node { value, position };
    let mut set_of_one = placed(Value::Map(Vec::new()));
    let mut lists = Vec::new();
    add_placeholder_lists(&node, &mut lists);
    if !lists.is_empty() {
        add_field(&mut set_of_one, "lists", unplaced(Value::Map(lists)));
    }
    add_field(
        &mut set_of_one,
        "rules",
        placed(Value::List(vec![node.clone()])),
    );
    check_set(set, set_of_one, options).map_err(invalid_rules)?;
    Ok(node)
}

/// Adds a list for each name that a rule refers to, so that the rule can be checked before the set
/// that has its lists is known. The value of each is one for any condition.
fn add_placeholder_lists(node: &Node, lists: &mut Vec<(Node, Node)>) {
    let Value::Map(pairs) = &node.value else {
        return;
    };
    for (key, value) in pairs {
        if let (Some("in" | "not_in"), Some(name)) = (key.as_text(), value.as_text()) {
            if lists.iter().all(|(known, _)| known.as_text() != Some(name)) {
                let list = Value::List(vec![text_node("192.0.2.1")]);
                lists.push((text_node(name), unplaced(list)));
            }
        } else {
            add_placeholder_lists(value, lists);
        }
    }
}

fn parse(body: &[u8]) -> Result<Node, Problem> {
    let text =
        std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    let node = parse_json(text).map_err(|fault| invalid_rules(vec![fault]))?;
    match node.value {
        Value::Map(_) => Ok(node),
        _ => Err(Problem::bad_request("the body is not a JSON object")),
    }
}

/// Validates an edited set in the form in which it will be loaded.
fn validate_edited(set: &str, text: &str, options: RuleOptions) -> Result<(), Problem> {
    let read = parse_json(text).map_err(|fault| vec![fault]);
    let checked = read.and_then(|node| check_set(set, node, options));
    checked.map(drop).map_err(|faults| {
        let first = faults.first().map(|fault| fault.message.clone());
        let detail = format!(
            "rule set `{set}` would become invalid: {}",
            first.unwrap_or_default()
        );
        Problem::new(StatusCode::CONFLICT, detail)
    })
}

fn check_size(text: String) -> Result<String, Problem> {
    if text.len() <= MAX_RULE_BYTES {
        return Ok(text);
    }
    Err(Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("a rule set may have at most {MAX_RULE_BYTES} bytes"),
    ))
}

fn invalid_rules(faults: Vec<Fault>) -> Problem {
    Problem::bad_request("the rules are invalid").with_faults(faults)
}
