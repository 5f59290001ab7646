//! What has changed between two versions of the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::rule::{List, Rule};
use super::set::{RuleSet, RuleSets};
use super::write::{on_error_name, rule_fields, written_values};

/// A change of the rules, displayed as `api/per-user: bands changed from … to …`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleChange {
    /// The rule set.
    pub rule_set: String,
    /// The rule; `None` if the change concerns the set.
    pub rule: Option<String>,
    /// What has changed.
    pub kind: RuleChangeKind,
}

/// What has changed of a rule or a rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It has other values.
    Changed(Vec<FieldChange>),
    /// Its rules have another order.
    Reordered,
}

/// A field of a rule or a rule set with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldChange {
    /// The field, such as `bands` or `match.path`.
    pub field: String,
    /// Its old value as YAML; `None` if it had the default.
    pub before: Option<String>,
    /// Its new value as YAML; `None` if it has the default.
    pub after: Option<String>,
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = &self.field;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => {
                write!(f, "{field} changed from {before} to {after}")
            }
            (None, Some(after)) => write!(f, "{field} set to {after}"),
            (Some(before), None) => write!(f, "{field} no longer {before}"),
            (None, None) => write!(f, "{field} unchanged"),
        }
    }
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rule_set)?;
        if let Some(rule) = &self.rule {
            write!(f, "/{rule}")?;
        }
        match &self.kind {
            RuleChangeKind::Added => f.write_str(": added"),
            RuleChangeKind::Removed => f.write_str(": removed"),
            RuleChangeKind::Reordered => f.write_str(": rules reordered"),
            RuleChangeKind::Changed(fields) => {
                let fields: Vec<_> = fields.iter().map(FieldChange::to_string).collect();
                write!(f, ": {}", fields.join("; "))
            }
        }
    }
}

impl RuleSets {
    /// Returns what has changed since an older version, by set and rule.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule, RuleSet, RuleSets};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = |limit| {
    ///     let rule = Rule::new("per-user").per_user().band(Quota::per_minute(limit));
    ///     Ok::<_, fluxgate_core::InvalidRules>(RuleSets::from(RuleSet::builder("api").rule(rule).build()?))
    /// };
    /// let changes = rules(20)?.changes_since(&rules(10)?);
    /// assert_eq!(
    ///     changes[0].to_string(),
    ///     "api/per-user: bands changed from [{ capacity: 10, window: 1m }] \
    ///      to [{ capacity: 20, window: 1m }]",
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes_since(&self, older: &Self) -> Vec<RuleChange> {
        let names: BTreeSet<_> = self
            .iter()
            .chain(older.iter())
            .map(|set| set.name())
            .collect();
        let mut changes = Vec::new();
        for name in names {
            let of_set = |kind| RuleChange {
                rule_set: name.into(),
                rule: None,
                kind,
            };
            match (older.get(name), self.get(name)) {
                (Some(before), Some(after)) => set_changes(before, after, &mut changes),
                (Some(_), None) => changes.push(of_set(RuleChangeKind::Removed)),
                (None, _) => changes.push(of_set(RuleChangeKind::Added)),
            }
        }
        changes
    }
}

fn set_changes(before: &RuleSet, after: &RuleSet, changes: &mut Vec<RuleChange>) {
    let mut push = |rule: Option<&str>, kind| {
        changes.push(RuleChange {
            rule_set: after.name().into(),
            rule: rule.map(Into::into),
            kind,
        });
    };
    let mut of_set = Vec::new();
    if before.on_error() != after.on_error() {
        of_set.push(FieldChange {
            field: "on_error".into(),
            before: Some(on_error_name(before.on_error())),
            after: Some(on_error_name(after.on_error())),
        });
    }
    if before.ipv6_prefix() != after.ipv6_prefix() {
        of_set.push(FieldChange {
            field: "ipv6_prefix".into(),
            before: Some(before.ipv6_prefix().to_string()),
            after: Some(after.ipv6_prefix().to_string()),
        });
    }
    of_set.extend(list_changes(&before.lists, &after.lists));
    if !of_set.is_empty() {
        push(None, RuleChangeKind::Changed(of_set));
    }
    let (old, new) = (by_id(before), by_id(after));
    for rule in ids(before).filter(|rule| !new.contains_key(rule)) {
        push(Some(rule), RuleChangeKind::Removed);
    }
    for rule in ids(after) {
        let Some(old) = old.get(rule) else {
            push(Some(rule), RuleChangeKind::Added);
            continue;
        };
        let fields = field_changes(old, new[rule]);
        if !fields.is_empty() {
            push(Some(rule), RuleChangeKind::Changed(fields));
        }
    }
    let is_kept = |id: &&str| old.contains_key(id) && new.contains_key(id);
    let reordered = ids(before).filter(is_kept).ne(ids(after).filter(is_kept));
    if reordered {
        push(None, RuleChangeKind::Reordered);
    }
}

fn by_id(set: &RuleSet) -> BTreeMap<&str, &Rule> {
    let rules = set.written.iter();
    rules
        .filter_map(|rule| Some((rule.id.as_deref()?, rule)))
        .collect()
}

fn ids(set: &RuleSet) -> impl Iterator<Item = &str> {
    set.written.iter().filter_map(|rule| rule.id.as_deref())
}

fn field_changes(before: &Rule, after: &Rule) -> Vec<FieldChange> {
    let (before, after) = (rule_fields(before), rule_fields(after));
    let value = |fields: &[(String, String)], name: &str| {
        let mut fields = fields.iter();
        let found = fields.find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in before.iter().chain(&after) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let changes = names.into_iter().map(|name| FieldChange {
        field: name.clone(),
        before: value(&before, name),
        after: value(&after, name),
    });
    changes
        .filter(|change| change.before != change.after)
        .collect()
}

/// The most values of a list that a change names.
const MAX_NAMED: usize = 10;

/// Returns the lists that have changed. Of a long list only new and removed items are
/// named, up to a few values each.
fn list_changes(before: &[List], after: &[List]) -> Vec<FieldChange> {
    fn values<'l>(lists: &'l [List], name: &str) -> Option<&'l [Box<str>]> {
        let found = lists.iter().find(|list| *list.name == *name);
        found.map(|list| &*list.values)
    }
    let names: BTreeSet<_> = before.iter().chain(after).map(|list| &list.name).collect();
    let mut changes = Vec::new();
    for name in names {
        let (old, new) = (values(before, name), values(after, name));
        if old == new {
            continue;
        }
        let others = |other: Option<&[Box<str>]>| -> BTreeSet<Box<str>> {
            other.unwrap_or_default().iter().cloned().collect()
        };
        let (without_old, without_new) = (others(old), others(new));
        let describe = |values: &[Box<str>], other: &BTreeSet<Box<str>>| {
            if values.len() <= MAX_NAMED {
                return written_values(values);
            }
            let own: Vec<_> = values
                .iter()
                .filter(|value| !other.contains(*value))
                .cloned()
                .collect();
            let named = written_values(&own[..own.len().min(MAX_NAMED)]);
            match own.len() {
                0 => format!("{} values", values.len()),
                1..=MAX_NAMED => format!("{} values, with {named}", values.len()),
                more => format!(
                    "{} values, with {named} and {} more",
                    values.len(),
                    more - MAX_NAMED
                ),
            }
        };
        changes.push(FieldChange {
            field: format!("lists.{name}"),
            before: old.map(|values| describe(values, &without_new)),
            after: new.map(|values| describe(values, &without_old)),
        });
    }
    changes
}
