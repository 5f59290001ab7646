//! Changes of rules and warnings about them, in logs and in JSON.

use fluxgate_core::{FieldChange, RuleChange, RuleChangeKind};
use serde::Serialize;

/// The maximum number of changes, and of warnings, that are logged for one reload.
const MAX_LINES: usize = 20;
/// The field that holds identities.
const OVERRIDES: &str = "overrides";

/// Logs what has changed. Without `names_identities`, values that hold identities are left out.
pub(super) fn log_changes(changes: &[RuleChange], names_identities: bool) {
    for change in changes.iter().take(MAX_LINES) {
        let (kind, fields) = parts(&change.kind);
        let fields: Vec<_> = fields
            .iter()
            .map(|field| {
                if field.field == OVERRIDES && !names_identities {
                    format!("{OVERRIDES} changed")
                } else {
                    field.to_string()
                }
            })
            .collect();
        tracing::info!(
            rule_set = change.rule_set,
            rule = change.rule,
            change = kind,
            fields = (!fields.is_empty()).then(|| fields.join("; ")),
            "rules changed"
        );
    }
    let more = changes.len().saturating_sub(MAX_LINES);
    if more > 0 {
        tracing::info!(more, "more rules changed");
    }
}

/// Logs warnings about the rules that become active.
pub(super) fn log_warnings(warnings: &[&String]) {
    for warning in warnings.iter().take(MAX_LINES) {
        // The level says it already.
        tracing::warn!("{}", warning.replacen(": warning: ", ": ", 1));
    }
    let more = warnings.len().saturating_sub(MAX_LINES);
    if more > 0 {
        tracing::warn!(more, "there are more warnings about the rules");
    }
}

/// Returns changes as the API reports them, as JSON.
pub(crate) fn changes_json(changes: &[RuleChange]) -> String {
    let changes: Vec<_> = changes.iter().map(ChangeJson::from).collect();
    // Texts have a form in JSON.
    serde_json::to_string(&changes).unwrap_or_default()
}

#[derive(Serialize)]
struct ChangeJson<'a> {
    rule_set: &'a str,
    rule: Option<&'a str>,
    change: &'static str,
    fields: Vec<FieldJson<'a>>,
}

#[derive(Serialize)]
struct FieldJson<'a> {
    field: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
}

impl<'a> From<&'a RuleChange> for ChangeJson<'a> {
    fn from(of: &'a RuleChange) -> Self {
        let (change, fields) = parts(&of.kind);
        let fields = fields.iter().map(|field| FieldJson {
            field: &field.field,
            before: field.before.as_deref(),
            after: field.after.as_deref(),
        });
        Self {
            rule_set: &of.rule_set,
            rule: of.rule.as_deref(),
            change,
            fields: fields.collect(),
        }
    }
}

/// Returns the name of the kind, and the fields that have changed.
fn parts(kind: &RuleChangeKind) -> (&'static str, &[FieldChange]) {
    match kind {
        RuleChangeKind::Added => ("added", &[]),
        RuleChangeKind::Removed => ("removed", &[]),
        RuleChangeKind::Reordered => ("reordered", &[]),
        RuleChangeKind::Changed(fields) => ("changed", fields),
        _ => ("changed", &[]),
    }
}
