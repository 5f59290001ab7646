//! `GET /v1/rule_sets`: the rules in force.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::{Algorithm, Band, KeyPart, OnError, Rule, RuleMode, RuleSet};
use serde_json::{Value, json};

use super::Api;
use crate::engine::EngineError;
use crate::http::Problem;

/// Tells which rule sets there are, with their enabled rules in the order of
/// evaluation, and where they come from.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    api.admin.admit_reader(&head)?;
    let rules = api.engine.rules().ok_or(EngineError::NotReady)?;
    let mut sets: Vec<_> = rules.iter().collect();
    sets.sort_by_key(|set| set.name());
    let sets: Vec<_> = sets.into_iter().map(|set| of_set(set)).collect();
    let source = api.admin.reloader.origin.name();
    let list = json!({ "source": source, "rule_sets": sets });
    Ok(super::json(list.to_string()))
}

fn of_set(set: &RuleSet) -> Value {
    let on_error = match set.on_error() {
        OnError::Allow => "allow",
        OnError::Deny => "deny",
        OnError::Local => "local",
    };
    let rules: Vec<_> = set.rules().iter().map(of_rule).collect();
    json!({ "name": set.name(), "on_error": on_error, "rules": rules })
}

fn of_rule(rule: &Rule) -> Value {
    let mode = match rule.mode() {
        RuleMode::Enforce => "enforce",
        RuleMode::Shadow => "shadow",
    };
    let key: Vec<_> = rule.key().iter().map(of_part).collect();
    let algorithm = rule.bands().first().map(|band| band.limit().algorithm());
    let bands: Vec<_> = rule.bands().iter().map(of_band).collect();
    json!({
        "id": rule.id(),
        "name": rule.name(),
        "mode": mode,
        "priority": rule.priority(),
        "key": key,
        "algorithm": algorithm.map(name_of),
        "bands": bands,
        "on_exceed": if rule.waits() { "wait" } else { "reject" },
    })
}

fn of_part(part: &KeyPart) -> String {
    match part {
        KeyPart::Ip => "ip".into(),
        KeyPart::User => "user".into(),
        KeyPart::ApiKey => "api_key".into(),
        KeyPart::Method => "method".into(),
        KeyPart::Path => "path".into(),
        KeyPart::Header(name) => format!("header:{name}"),
        KeyPart::Attribute(name) => format!("attr:{name}"),
    }
}

fn of_band(band: &Band) -> Value {
    let limit = band.limit();
    let mut of_band = json!({
        "id": band.id(),
        "capacity": limit.capacity(),
        "window_ms": limit.window().ceil_millis(),
    });
    if limit.algorithm().is_bucket() {
        of_band["refill"] = limit.rate().refill().into();
        of_band["period_ms"] = limit.rate().period().ceil_millis().into();
    }
    of_band
}

fn name_of(algorithm: Algorithm) -> &'static str {
    let mut names = Algorithm::NAMES.iter();
    let found = names.find(|(_, known)| *known == algorithm);
    found.map_or("", |(name, _)| name)
}
