//! `POST /v1/validate`: the faults and warnings of a rule file.

use std::sync::Arc;

use axum::extract::{Request, State};
use fluxgate_core::json::Text;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Fault, Faults, Fields, Node};
use fluxgate_core::{RuleSets, RulesError};
use serde::{Deserialize, Serialize};

use super::body;
use super::response::{ApiResult, FaultJson, fault_list, json_response};
use super::state::SharedState;
use crate::admin::{AdminAccess, Role};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValidateRequest<'a> {
    #[serde(borrow)]
    rules: Option<Text<'a>>,
}

/// Validates a rule file for the filters and the store of this service.
pub(super) async fn validate(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let body = body::read(&head.headers, body).await?;
    let validated = Arc::clone(&api);
    let work = move || {
        let ValidateRequest { rules } = body::parse(&body)?;
        let Text(text) = rules.ok_or_else(|| body::missing("rules"))?;
        Ok(report(&text, &validated.admin))
    };
    Ok(json_response(api.read_pool.run(work).await?))
}

#[derive(Serialize)]
struct Report<'a> {
    faults: Vec<FaultJson<'a>>,
    warnings: Vec<FaultJson<'a>>,
}

/// Returns the faults and warnings as JSON.
fn report(text: &str, admin: &AdminAccess) -> Vec<u8> {
    let (faults, warnings) = match read(text, admin) {
        Ok(warnings) => (Vec::new(), warnings),
        Err(RulesError(faults)) => (faults, Vec::new()),
    };
    let report = Report {
        faults: fault_list(&faults),
        warnings: fault_list(&warnings),
    };
    // Texts and numbers have a form in JSON.
    serde_json::to_vec(&report).unwrap_or_default()
}

/// Reads a rule file in a request, whose rules are only tried.
pub(super) fn read_rules(text: &str, options: RuleOptions) -> Result<(Node, RuleSets), RulesError> {
    let root = Node::parse_request(text).map_err(|fault| RulesError(vec![fault]))?;
    let options = RuleOptions {
        is_trial: true,
        ..options
    };
    let rules = RuleSets::from_node_with(&root, options)?;
    Ok((root, rules))
}

/// Returns the warnings of a valid file.
fn read(text: &str, admin: &AdminAccess) -> Result<Vec<Fault>, RulesError> {
    let (root, rules) = read_rules(text, admin.options)?;
    // Without faults, the field is there.
    let known = &["rule_sets", "on_missing_rule_set", "keys"];
    let fields = Fields::read(Some(&root), "a rule file", known, &mut Faults::default());
    let rule_sets = fields.get("rule_sets");
    Ok(rule_sets.map_or_else(Vec::new, |node| admin.deployment.warnings(&rules, node)))
}
