//! What changes in a rule set, for people and for programs.

use std::fmt;

use fluxgate_core::{RuleChange, RuleChangeKind};
use serde::Serialize;

use super::content::SetContent;

/// The value of a field that is not written.
const DEFAULT: &str = "(default)";
/// What a rule has as its first field, which is in the first line already.
const ID: &str = "id";

/// A change of a rule, or of a rule set.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    rule_set: String,
    /// `None` if the change concerns the set.
    rule: Option<String>,
    change: ChangeKind,
    /// The fields with another value; of a rule that is added, all that have no default.
    fields: Vec<FieldChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ChangeKind {
    Added,
    Removed,
    Changed,
    Reordered,
}

#[derive(Debug, Serialize)]
struct FieldChange {
    field: String,
    /// As YAML; `None` is the default.
    before: Option<String>,
    after: Option<String>,
}

/// Returns what changes in a rule set, rule by rule. `None` is a set that does not exist.
pub(super) fn changes_of(
    name: &str,
    before: Option<&SetContent>,
    after: Option<&SetContent>,
) -> Vec<Change> {
    let whole = |change, set: &SetContent| {
        let of_rule = |rule: &str| match change {
            ChangeKind::Added => Change::added(name, rule, set),
            _ => Change::new(name, Some(rule), change),
        };
        let rules = set.rule_ids().into_iter().map(of_rule);
        [Change::new(name, None, change)]
            .into_iter()
            .chain(rules)
            .collect()
    };
    match (before, after) {
        (None, None) => Vec::new(),
        (None, Some(after)) => whole(ChangeKind::Added, after),
        (Some(before), None) => whole(ChangeKind::Removed, before),
        (Some(before), Some(after)) => {
            let changes = after.rules.changes_since(&before.rules);
            let changes = changes.into_iter().map(|it| Change::between(it, after));
            changes.collect()
        }
    }
}

impl Change {
    /// Returns the removal of a set whose rules are not known.
    pub(super) fn removed_set(name: &str) -> Self {
        Self::new(name, None, ChangeKind::Removed)
    }

    fn new(set: &str, rule: Option<&str>, change: ChangeKind) -> Self {
        Self {
            rule_set: set.to_owned(),
            rule: rule.map(str::to_owned),
            change,
            fields: Vec::new(),
        }
    }

    fn added(name: &str, rule: &str, set: &SetContent) -> Self {
        let fields = set.fields(rule).into_iter();
        let fields = fields.filter(|(field, _)| field != ID);
        Self {
            fields: fields
                .map(|(field, value)| FieldChange {
                    field,
                    before: None,
                    after: Some(value),
                })
                .collect(),
            ..Self::new(name, Some(rule), ChangeKind::Added)
        }
    }

    /// Returns a change between two versions of a set. `after` is the newer one.
    fn between(change: RuleChange, after: &SetContent) -> Self {
        let (set, rule) = (&*change.rule_set, change.rule.as_deref());
        match (change.kind, rule) {
            (RuleChangeKind::Added, Some(rule)) => Self::added(set, rule, after),
            (RuleChangeKind::Added, None) => Self::new(set, None, ChangeKind::Added),
            (RuleChangeKind::Removed, rule) => Self::new(set, rule, ChangeKind::Removed),
            (RuleChangeKind::Reordered, rule) => Self::new(set, rule, ChangeKind::Reordered),
            (RuleChangeKind::Changed(fields), rule) => Self {
                fields: fields
                    .into_iter()
                    .map(|field| FieldChange {
                        field: field.field,
                        before: field.before,
                        after: field.after,
                    })
                    .collect(),
                ..Self::new(set, rule, ChangeKind::Changed)
            },
            (_, rule) => Self::new(set, rule, ChangeKind::Changed),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, word) = match (self.change, &self.rule) {
            (ChangeKind::Added, Some(_)) => ('+', "added"),
            (ChangeKind::Added, None) => ('+', "rule set added"),
            (ChangeKind::Removed, Some(_)) => ('-', "removed"),
            (ChangeKind::Removed, None) => ('-', "rule set removed"),
            (ChangeKind::Changed, _) => ('~', "changed"),
            (ChangeKind::Reordered, _) => ('~', "rules reordered"),
        };
        write!(f, "{sign} {}", self.rule_set)?;
        if let Some(rule) = &self.rule {
            write!(f, "/{rule}")?;
        }
        writeln!(f, ": {word}")?;
        for FieldChange {
            field,
            before,
            after,
        } in &self.fields
        {
            let after = after.as_deref().unwrap_or(DEFAULT);
            if self.change == ChangeKind::Added {
                writeln!(f, "    {field}: {after}")?;
            } else {
                let before = before.as_deref().unwrap_or(DEFAULT);
                writeln!(f, "    {field}: {before} -> {after}")?;
            }
        }
        Ok(())
    }
}

/// Returns changes as text.
pub(super) fn text_of<'c>(changes: impl IntoIterator<Item = &'c Change>) -> String {
    let texts = changes.into_iter().map(Change::to_string);
    texts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn content(rules: &str) -> SetContent {
        SetContent::read("api", format!("{{\"rules\":[{rules}]}}")).unwrap()
    }

    #[test]
    fn a_set_is_compared_rule_by_rule() {
        let before = content(
            r#"{"id":"a","scope":"per_user","bands":["5/m"]},{"id":"b","scope":"global","bands":["1/s"]}"#,
        );
        let after = content(
            r#"{"id":"a","scope":"per_user","mode":"shadow","bands":["6/m"]},{"id":"c","enabled":false,"scope":"global","bands":["1/s"]}"#,
        );
        let changes = changes_of("api", Some(&before), Some(&after));
        assert_eq!(
            text_of(&changes),
            "- api/b: removed\n\
             ~ api/a: changed\n\
             \x20   bands: [{ capacity: 5, window: 1m }] -> [{ capacity: 6, window: 1m }]\n\
             \x20   mode: (default) -> shadow\n\
             + api/c: added\n\
             \x20   enabled: false\n\
             \x20   scope: global\n\
             \x20   bands: [{ capacity: 1, window: 1s }]\n"
        );
        assert_eq!(
            json!(changes[1].fields[1]),
            json!({ "field": "mode", "before": null, "after": "shadow" })
        );
        let added = changes_of("api", None, Some(&after));
        assert_eq!(added.len(), 3);
        assert_eq!(
            json!(added[0]),
            json!({ "rule_set": "api", "rule": null, "change": "added", "fields": [] })
        );
        let removed = changes_of("api", Some(&before), None);
        assert_eq!(
            text_of(&removed),
            "- api: rule set removed\n- api/a: removed\n- api/b: removed\n"
        );
        assert!(changes_of("api", Some(&after), Some(&after)).is_empty());
        assert!(changes_of("api", None, None).is_empty());
    }

    #[test]
    fn another_order_is_a_change() {
        let [a, b] =
            ["a", "b"].map(|id| format!(r#"{{"id":"{id}","scope":"global","bands":["1/s"]}}"#));
        let (before, after) = (content(&format!("{a},{b}")), content(&format!("{b},{a}")));
        let changes = changes_of("api", Some(&before), Some(&after));
        assert_eq!(text_of(&changes), "~ api: rules reordered\n");
    }
}
