//! `GET /v1/recent`: the last requests, in the form that `/v1/simulate` takes.

use std::sync::Arc;

use axum::extract::State;
use fluxgate_core::{KeyPart, RuleSet, RuleSets};
use fluxgate_http::Problem;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::query;
use super::response::{ApiResult, json_response};
use super::state::SharedState;
use crate::admin::Role;
use crate::identities::Pseudonyms;
use crate::telemetry::{MAX_RECENT, RecentRequest};

/// Returns the recorded requests, the oldest first.
pub(super) async fn recent(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let most = read_most(head.uri.query().unwrap_or_default())?;
    let telemetry = Arc::clone(api.engine.telemetry());
    let rules = api.engine.rules().unwrap_or_default();
    let names = api.engine.identities().pseudonyms();
    let hides = api.admin.hides_identities;
    let is_named = telemetry.names_identities() && !hides;
    let work = move || {
        let events = telemetry.recent(most);
        let events: Vec<_> = events
            .iter()
            .map(|it| event(it, &rules, &names, is_named, hides))
            .collect();
        let is_recording = telemetry.is_recording();
        Ok(
            json!({ "records": is_recording, "identities": is_named, "events": events })
                .to_string(),
        )
    };
    Ok(json_response(api.read_pool.run(work).await?))
}

fn read_most(query: &str) -> Result<usize, Problem> {
    let mut most = MAX_RECENT;
    for field in query::fields(query) {
        let (name, value) = field?;
        most = match &*name {
            "n" => query::count("n", &value, MAX_RECENT)?,
            _ => return Err(query::unknown(&name)),
        };
    }
    Ok(most)
}

/// Returns a request as an event. Unless `is_named`, pseudonyms replace all values except those
/// that a match or a cost depends on, and paths have no query. An API key always has a pseudonym. A
/// path that is an identity has one if the service `hides` identities.
fn event(
    request: &RecentRequest,
    rules: &RuleSets,
    names: &Pseudonyms,
    is_named: bool,
    hides: bool,
) -> Value {
    let mut event = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            event.insert(name.into(), value);
        }
    };
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let set: Option<&RuleSet> = request
        .rule_set
        .as_deref()
        .and_then(|set| rules.get(set))
        .map(AsRef::as_ref);
    put("t", Some(json!(request.at.as_micros() as u64)));
    put("rule_set", text(&request.rule_set));
    let ip = request.ip.map(|ip| {
        if is_named {
            ip
        } else {
            names.of_address(ip, set.map_or(64, RuleSet::ipv6_prefix))
        }
    });
    put("ip", ip.map(|ip| ip.to_string().into()));
    let user = request.user.as_ref().map(|user| {
        if is_named {
            user.clone()
        } else {
            names.of_value(user.as_bytes())
        }
    });
    put("user", user.map(Value::from));
    let api_key = request
        .api_key
        .as_ref()
        .map(|key| names.of_value(key.as_bytes()));
    put("api_key", api_key.map(Value::from));
    put("method", text(&request.method));
    let path = request.path.as_deref().map(|path| {
        let (bare, _) = path.split_once('?').unwrap_or((path, ""));
        let is_key = set.is_none_or(|set| counts_by(set, &KeyPart::Path));
        match (is_named, hides && is_key) {
            (true, _) => path.to_owned(),
            (false, true) => names.of_value(bare.as_bytes()),
            (false, false) => bare.to_owned(),
        }
    });
    put("path", path.map(Value::from));
    put("cost", request.cost.map(Value::from));
    let pairs = |pairs: &[(String, String)], part: fn(Box<str>) -> KeyPart| {
        let pairs = pairs.iter().map(|(name, value)| {
            let part = part(name.as_str().into());
            let is_shown = |set: &RuleSet| {
                set.rules().iter().any(|rule| rule.reads(&part)) && !counts_by(set, &part)
            };
            let value = if is_named || set.is_some_and(is_shown) {
                value.clone()
            } else {
                names.of_value(value.as_bytes())
            };
            (name.clone(), Value::from(value))
        });
        let pairs: Map<_, _> = pairs.collect();
        (!pairs.is_empty()).then_some(Value::Object(pairs))
    };
    let header = |name: Box<str>| KeyPart::Header(name.to_ascii_lowercase().into());
    put("headers", pairs(&request.headers, header));
    put("attributes", pairs(&request.attributes, KeyPart::Attribute));
    Value::Object(event)
}

/// Returns whether a rule of the set has this part in its key.
fn counts_by(set: &RuleSet, part: &KeyPart) -> bool {
    let mut parts = set.rules().iter().flat_map(|rule| rule.key());
    parts.any(|known| known == part)
}
