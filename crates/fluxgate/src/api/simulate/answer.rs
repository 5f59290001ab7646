//! What both kinds of trials need: their rules, their bound, and the parts of their answers.

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::{RuleSets, RulesError};
use fluxgate_http::Problem;
use fluxgate_simulate::{Change, ChangedIdentity, Changes, Summary};
use serde_json::{Value, json};

use crate::api::validate::read_rules;

/// How many rules are applied to events in all: 20 to each, if there are as many as allowed.
/// Each counter takes memory until the end.
pub(super) const MAX_APPLIED: u64 = 200_000;

/// Reads the text of a rule file.
pub(super) fn valid_rules(text: &str, options: RuleOptions) -> Result<RuleSets, Problem> {
    let rules = read_rules(text, options).map_err(|RulesError(faults)| {
        Problem::bad_request("the rules are invalid").with_faults(faults)
    });
    Ok(rules?.1)
}

/// Returns the counts of all requests and of each rule.
pub(super) fn summary_json(summary: &Summary) -> Value {
    let total = summary.total();
    let rules = summary.rules().map(|(name, counts)| {
        let (rule_set, rule) = name.rsplit_once('/').unwrap_or(("", name));
        json!({
            "rule_set": rule_set,
            "rule": rule,
            "requests": counts.requests,
            "allowed": counts.allowed(),
            "denied": counts.denied,
            "shadow_denied": counts.shadow_denied,
        })
    });
    json!({
        "total": {
            "requests": total.requests,
            "allowed": total.allowed(),
            "denied": total.denied,
            "shadow_denied": total.shadow_denied,
        },
        "rules": rules.collect::<Vec<_>>(),
    })
}

/// Returns what changes, with the identities that are affected most.
pub(super) fn changes_json(changes: &Changes) -> Value {
    changes_json_naming(
        changes,
        |_, _, changed| json!({ "identity": changed.identity }),
    )
}

/// Returns the changes. `name` returns what the answer says of an identity of a rule.
pub(super) fn changes_json_naming(
    changes: &Changes,
    name_of: impl Fn(&str, &str, &ChangedIdentity<'_>) -> Value,
) -> Value {
    let mut identities = Vec::new();
    for (change, name) in [
        (Change::NewlyDenied, "newly_denied"),
        (Change::NewlyAdmitted, "newly_allowed"),
    ] {
        for changed in changes.identities(change) {
            let (rule_set, rule) = changed.rule.rsplit_once('/').unwrap_or(("", changed.rule));
            let mut identity = name_of(rule_set, rule, &changed);
            for (field, value) in [
                ("rule_set", json!(rule_set)),
                ("rule", json!(rule)),
                ("newly_denied", json!(0)),
                ("newly_allowed", json!(0)),
                (name, json!(changed.requests)),
            ] {
                identity[field] = value;
            }
            identities.push(identity);
        }
    }
    let total = changes.total();
    json!({
        "newly_denied": total.newly_denied,
        "newly_allowed": total.newly_admitted,
        "identities": identities,
    })
}
