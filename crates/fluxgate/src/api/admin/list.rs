//! `GET /v1/rule_sets`: the active rules.

use axum::extract::State;
use fluxgate_core::store::Micros;
use fluxgate_core::yaml::Node;
use fluxgate_core::{ActiveRule, Algorithm, Band, OnError, RuleAction, RuleSet};
use http::request::Parts;
use serde_json::{Map, Value, json};

use crate::admin::Role;
use crate::api::explain::{action_name, mode_name};
use crate::api::response::{ApiResult, compressed_json, json_response};
use crate::api::state::SharedState;
use crate::engine::EngineError;
use crate::reload::to_json;

/// How many ends of overrides are listed of a rule.
const MAX_ENDS: usize = 20;

/// Returns the rule sets, with their enabled rules in the order of evaluation, and where
/// they come from.
pub(super) async fn list(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize_reader(&head)?;
    let rules = api.engine.rules().ok_or(EngineError::NotReady)?;
    let mut sets: Vec<_> = rules.iter().collect();
    sets.sort_by_key(|set| set.name());
    // Conditions may name values that not every reader may see.
    let shows_match = api.admin.authorize(&head, Role::Viewer).is_ok();
    let sets: Vec<_> = sets
        .into_iter()
        .map(|set| set_json(set, shows_match))
        .collect();
    let source = api.admin.reloader.source.kind();
    let list = json!({ "source": source, "rule_sets": sets });
    Ok(compressed_json(&head.headers, list.to_string()))
}

fn set_json(set: &RuleSet, shows_match: bool) -> Value {
    let on_error = name_of(&OnError::NAMES, set.on_error());
    let rules: Vec<_> = set
        .rules()
        .iter()
        .map(|rule| {
            let fields = set.written_fields(rule.id());
            let mut json = rule_json(set, rule);
            add_written(&mut json, rule, &fields);
            if shows_match {
                json["match"] = match_json(&fields);
            }
            json
        })
        .collect();
    let mut json = json!({ "name": set.name(), "on_error": on_error, "rules": rules });
    let disabled = set.disabled().map(|id| {
        let fields = set.written_fields(id);
        json!({ "id": id, "name": value_of(&fields, "name") })
    });
    let disabled: Vec<_> = disabled.collect();
    if !disabled.is_empty() {
        json["disabled"] = disabled.into();
    }
    json
}

fn rule_json(set: &RuleSet, rule: &ActiveRule) -> Value {
    let key: Vec<_> = rule.key().iter().map(ToString::to_string).collect();
    let algorithm = rule.bands().first().map(|band| band.limit().algorithm());
    let bands: Vec<_> = rule.bands().iter().map(band_json).collect();
    let notify: Vec<_> = rule.notify().iter().map(ToString::to_string).collect();
    let lease = rule.lease().map(|lease| {
        let life = Micros::from_duration(lease.span());
        json!({ "share": lease.share().to_string(), "for_ms": life.ceil_millis() })
    });
    let mut json = json!({
        "id": rule.id(),
        "name": rule.name(),
        "mode": mode_name(rule.mode()),
        "priority": rule.priority(),
        "key": key,
        "group": set.group_of(rule),
        "rollout": rule.rollout().map(|share| share.to_string()),
        "algorithm": algorithm.map(|algorithm| name_of(&Algorithm::NAMES, algorithm)),
        "bands": bands,
        "lease": lease,
        "notify": notify,
        "on_exceed": if rule.waits() { "wait" } else { "reject" },
    });
    if let Some(action) = action_name(rule.action()) {
        json["action"] = action.into();
    }
    if let RuleAction::Deny { status } = rule.action() {
        json["status"] = status.into();
    }
    json
}

/// Adds what else a rule does that is not the default. Identities are only counted.
fn add_written(json: &mut Value, rule: &ActiveRule, fields: &[(String, String)]) {
    for name in ["cost", "charge", "on_missing_key"] {
        if let Some(value) = value_of(fields, name) {
            json[name] = value;
        }
    }
    if let Some(wait) = rule.max_wait() {
        json["max_wait_ms"] = wait.ceil_millis().into();
    }
    if rule.bands().iter().any(|band| band.limit().rate().shape()) {
        json["shape"] = true.into();
    }
    let overrides = value_of(fields, "overrides");
    if let Some(overrides) = overrides.as_ref().and_then(Value::as_array) {
        let ends = overrides.iter().filter_map(|it| it["until"].as_str());
        let ends: Vec<_> = ends.take(MAX_ENDS).collect();
        json["overrides"] = json!({ "count": overrides.len(), "until": ends });
    }
}

/// Returns the value of a written field as JSON.
fn value_of(fields: &[(String, String)], name: &str) -> Option<Value> {
    let (_, text) = fields.iter().find(|(known, _)| known == name)?;
    // What we write as YAML can be read.
    let node = Node::parse(text).ok()?;
    serde_json::from_str(&to_json(&node)).ok()
}

/// Returns the conditions of a rule as they are written; null if it has none.
fn match_json(fields: &[(String, String)]) -> Value {
    let mut conditions = Map::new();
    for (name, _) in fields {
        if let Some(condition) = name.strip_prefix("match.") {
            let value = value_of(fields, name).unwrap_or_default();
            conditions.insert(condition.to_owned(), value);
        }
    }
    if conditions.is_empty() {
        Value::Null
    } else {
        Value::Object(conditions)
    }
}

/// `GET /v1/rules_text`: returns the active rules as the text of a rule file.
pub(super) async fn text(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let rules = api.engine.rules().ok_or(EngineError::NotReady)?;
    Ok(json_response(
        json!({ "text": rules.to_yaml() }).to_string(),
    ))
}

fn band_json(band: &Band) -> Value {
    let limit = band.limit();
    let mut json = json!({
        "id": band.id(),
        "capacity": limit.capacity(),
    });
    if let Some(calendar) = limit.windows() {
        json["calendar"] = calendar.unit().name().into();
        json["time_zone"] = calendar.time_zone().name().into();
    } else if limit.algorithm() == Algorithm::Concurrency {
        json["hold_ms"] = limit.window().ceil_millis().into();
    } else {
        json["window_ms"] = limit.window().ceil_millis().into();
    }
    if limit.algorithm().is_bucket() {
        json["refill"] = limit.rate().refill().into();
        json["period_ms"] = limit.rate().period().ceil_millis().into();
    }
    json
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    let found = names.iter().find(|(_, known)| *known == value);
    found.map_or("", |(name, _)| name)
}
