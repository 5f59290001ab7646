//! Edits of a stored rule set.

use fluxgate_core::RuleChange;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Fault, Node, Value};
use fluxgate_http::Problem;
use fluxgate_redis::{MAX_RULE_BYTES, StoredSet, etag_of};
use http::StatusCode;

use super::access::{no_such_rule, no_such_set};
use crate::api::admin::conditions::Condition;
use crate::config::Deployment;
use crate::reload::{Json, check_set, parse_node, wrap_in_mapping};

/// An edit. New content has been validated.
#[derive(Debug)]
pub(super) enum Edit {
    /// Replaces the set.
    Replace(Json),
    /// Deletes the set.
    Delete,
    /// Replaces the rule of the same id, or appends one.
    PutRule(Json),
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
#[derive(Debug)]
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

/// The texts that an edit produces.
struct NewTexts {
    /// The whole set, or `None` to delete it.
    set: Option<String>,
    /// The body of the response.
    body: Option<String>,
    /// Whether the edit creates the set or the rule.
    created: bool,
}

impl Edit {
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
            let (_, node) = parse_node(text?).ok()?;
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
            set: new.set,
            body: new.body,
            created: new.created,
        })
    }

    fn edit(
        &self,
        target: &EditTarget,
        stored: Option<&StoredSet>,
        condition: &Condition,
        options: RuleOptions,
    ) -> Result<NewTexts, Problem> {
        let set = &*target.set;
        let rule = match (self, target.rule.as_deref()) {
            (Self::Replace(new), _) => {
                condition.check(stored.map(|it| it.etag.as_str()))?;
                let text = check_size(new.to_string())?;
                return Ok(NewTexts {
                    set: Some(text.clone()),
                    body: Some(text),
                    created: stored.is_none(),
                });
            }
            (Self::Delete, _) | (_, None) => {
                condition.check(stored.map(|it| it.etag.as_str()))?;
                // Without a condition, an entry that exists only in the index is also deleted.
                if stored.is_none() && *condition != Condition::Any {
                    return Err(no_such_set(set));
                }
                return Ok(NewTexts {
                    set: None,
                    body: None,
                    created: false,
                });
            }
            (_, Some(rule)) => rule,
        };
        let mut rules = EditableRuleSet::read(set, stored)?;
        let now = rules.get(rule).map(|rule| etag_of(&rule.to_string()));
        condition.check(now.as_deref())?;
        if now.is_none() && !matches!(self, Self::PutRule(_)) {
            return Err(no_such_rule(set, rule));
        }
        let body = match self {
            Self::PutRule(new) => rules.put(rule, new.clone()),
            Self::SetEnabled(is_enabled) => rules.set_enabled(rule, *is_enabled),
            _ => rules.remove(rule),
        };
        let text = rules.0.to_string();
        validate_edited(set, &text, options)?;
        Ok(NewTexts {
            set: Some(check_size(text)?),
            body,
            created: now.is_none(),
        })
    }
}

/// A stored set, with access to its rules.
#[derive(Debug)]
pub(super) struct EditableRuleSet(Json);

impl EditableRuleSet {
    pub(super) fn read(set: &str, stored: Option<&StoredSet>) -> Result<Self, Problem> {
        let stored = stored.ok_or_else(|| no_such_set(set))?;
        let json = Json::parse(&stored.text)
            .ok()
            .filter(|json| matches!(json.get("rules"), Some(Json::List(_))));
        json.map(Self).ok_or_else(|| {
            let detail = format!("the stored rule set `{set}` is invalid; replace it");
            Problem::new(StatusCode::CONFLICT, detail)
        })
    }

    /// Returns the rule with this id.
    pub(super) fn get(&self, id: &str) -> Option<&Json> {
        let Some(Json::List(rules)) = self.0.get("rules") else {
            return None;
        };
        rules.iter().find(|rule| has_id(rule, id))
    }

    fn list(&mut self) -> Option<&mut Vec<Json>> {
        match self.0.get_mut("rules") {
            Some(Json::List(rules)) => Some(rules),
            _ => None,
        }
    }

    /// Replaces the rule with the same id, or appends one.
    fn put(&mut self, id: &str, new: Json) -> Option<String> {
        let body = new.to_string();
        let rules = self.list()?;
        match rules.iter_mut().find(|rule| has_id(rule, id)) {
            Some(old) => *old = new,
            None => rules.push(new),
        }
        Some(body)
    }

    /// Enables or disables a rule.
    fn set_enabled(&mut self, id: &str, is_enabled: bool) -> Option<String> {
        let rule = self.list()?.iter_mut().find(|rule| has_id(rule, id))?;
        rule.set("enabled", Json::Plain(is_enabled.to_string()));
        Some(rule.to_string())
    }

    fn remove(&mut self, id: &str) -> Option<String> {
        self.list()?.retain(|rule| !has_id(rule, id));
        None
    }
}

fn has_id(rule: &Json, id: &str) -> bool {
    rule.get("id").and_then(Json::as_text) == Some(id)
}

/// Parses and validates the rule set in a body.
pub(super) fn parse_set(set: &str, body: &[u8], options: RuleOptions) -> Result<Json, Problem> {
    let (json, node) = parse(body)?;
    check_set(set, node, options).map_err(invalid_rules)?;
    Ok(json)
}

/// Parses and validates the rule set in a body of YAML.
pub(super) fn parse_yaml_set(
    set: &str,
    body: &[u8],
    options: RuleOptions,
) -> Result<Json, Problem> {
    let text =
        std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    let node = Node::parse_request(text).map_err(|fault| invalid_rules(vec![fault]))?;
    // All instances read the stored set as JSON, so it must also be valid as JSON.
    let json = Json::from_node(&node);
    check_set(set, node, options).map_err(invalid_rules)?;
    check_set(set, json.to_node(), options).map_err(invalid_rules)?;
    Ok(json)
}

/// Returns a stored set as YAML. An invalid set is returned as JSON, which is also YAML.
pub(super) fn yaml_of(set: &str, text: &str, options: RuleOptions) -> String {
    let rules = parse_node(text)
        .ok()
        .and_then(|(_, node)| check_set(set, node, options).ok());
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
) -> Result<Json, Problem> {
    let (mut json, mut node) = parse(body)?;
    match json.get("id").and_then(Json::as_text) {
        Some(given) if given == id => {}
        Some(given) => {
            return Err(Problem::bad_request(format!(
                "`id` is `{given}`, but the path names `{id}`"
            )));
        }
        None if json.get("id").is_none() => {
            let named = Json::Text(id.to_owned());
            if let Value::Map(pairs) = &mut node.value {
                let key = Json::Text("id".into()).to_node();
                pairs.push((key, named.to_node()));
            }
            json.set("id", named);
        }
        None => return Err(Problem::bad_request("`id` must be a text")),
    }
    let position = node.position;
    let mut lists = Vec::new();
    add_placeholder_lists(&node, &mut lists);
    let mut fields = Vec::new();
    if !lists.is_empty() {
        let lists = Json::Map(lists);
        fields.push((Json::Text("lists".into()).to_node(), lists.to_node()));
    }
    let list = Node {
        value: Value::List(vec![node]),
        position,
    };
    fields.push((Json::Text("rules".into()).to_node(), list));
    let set_of_one = Node {
        value: Value::Map(fields),
        position,
    };
    check_set(set, set_of_one, options).map_err(invalid_rules)?;
    Ok(json)
}

/// Adds a list for each name that a rule refers to, so that the rule can be checked before the set
/// that has its lists is known. The value of each is one for any condition.
fn add_placeholder_lists(node: &Node, lists: &mut Vec<(String, Json)>) {
    let Value::Map(pairs) = &node.value else {
        return;
    };
    for (key, value) in pairs {
        if let (Some("in" | "not_in"), Some(name)) = (key.as_text(), value.as_text()) {
            if lists.iter().all(|(known, _)| known != name) {
                let value = Json::Text("192.0.2.1".into());
                lists.push((name.to_owned(), Json::List(vec![value])));
            }
        } else {
            add_placeholder_lists(value, lists);
        }
    }
}

fn parse(body: &[u8]) -> Result<(Json, Node), Problem> {
    let text =
        std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    let (json, node) = parse_node(text).map_err(|fault| invalid_rules(vec![fault]))?;
    match json {
        Json::Map(_) => Ok((json, node)),
        _ => Err(Problem::bad_request("the body is not a JSON object")),
    }
}

/// Validates an edited set in the form in which it will be loaded.
fn validate_edited(set: &str, text: &str, options: RuleOptions) -> Result<(), Problem> {
    let read = parse_node(text).map_err(|fault| vec![fault]);
    let checked = read.and_then(|(_, node)| check_set(set, node, options));
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
