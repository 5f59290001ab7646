//! `GET /v1/recent`: the last requests of all instances, in the form that `/v1/simulate` takes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use fluxgate_core::{KeyPart, Outcome, RuleSet, RuleSets};
use fluxgate_http::Problem;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::identity::open_handle;
use super::query;
use super::response::{ApiResult, compressed_json};
use super::state::SharedState;
use crate::admin::Role;
use crate::identities::Identities;
use crate::recording::{RequestFilter, handle_of};
use crate::telemetry::{MAX_RECENT, RecentRequest};

/// How long other instances have to answer. They look once a second.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Returns the recorded requests, the oldest first.
pub(super) async fn recent(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let filter = read_filter(head.uri.query().unwrap_or_default())?;
    let identities = Arc::clone(api.engine.identities());
    if let Some(handle) = &filter.handle {
        open_handle(&identities, handle)?;
    }
    let valid = identities.filter(&filter.identity);
    valid.map_err(|error| Problem::bad_request(format!("`identity`: {error}")))?;
    let is_fleet = api.engine.store().redis().is_some();
    let others = api
        .recordings
        .others(&api.engine, &api.instances, &filter, PATIENCE)
        .await;
    let engine = Arc::clone(&api.engine);
    let hides = api.admin.hides_identities;
    let work = move || {
        let fleet = others.with_own(&engine, &filter);
        let rules = engine.rules().unwrap_or_default();
        let is_named = engine.telemetry().names_identities() && !hides;
        let events = fleet.requests.iter();
        let events = events.map(|request| event(request, &rules, &identities, is_named, hides));
        let decisions = fleet.requests.iter().map(|request| {
            json!({
                "outcome": request.outcome.map(Outcome::name),
                "rule": request.rule,
                "handle": handle_of(request, &rules, &identities),
            })
        });
        let list = json!({
            "records": fleet.recording > 0,
            "identities": is_named,
            "scope": if is_fleet && fleet.failure.is_none() { "fleet" } else { "instance" },
            "instances": {
                "known": fleet.known,
                "answered": fleet.answered,
                "recording": fleet.recording,
            },
            "failure": fleet.failure,
            "events": events.collect::<Vec<_>>(),
            "decisions": decisions.collect::<Vec<_>>(),
        });
        Ok(list.to_string())
    };
    let json = api.read_pool.run(work).await?;
    Ok(compressed_json(&head.headers, json))
}

/// Reads which requests are wanted.
fn read_filter(query: &str) -> Result<RequestFilter, Problem> {
    let mut wanted = RequestFilter::default();
    for field in query::fields(query) {
        let (name, value) = field?;
        match &*name {
            "n" => wanted.count = query::count("n", &value, MAX_RECENT)?,
            "rule_set" => wanted.rule_set = Some(value),
            "rule" => wanted.rule = Some(value),
            "identity" => wanted.identity.push(value),
            "handle" => wanted.handle = Some(value),
            "outcome" => {
                let names = Outcome::ALL.map(Outcome::name);
                if !names.contains(&&*value) {
                    return Err(query::expected("outcome", &names.join(", "), &value));
                }
                wanted.outcome = Some(value);
            }
            _ => return Err(query::unknown(&name)),
        }
    }
    Ok(wanted)
}

/// Returns a request as an event. Unless `is_named`, pseudonyms replace all values except those
/// that a match or a cost depends on, and paths have no query. An API key always has a pseudonym. A
/// path that is an identity has one if the service `hides` identities.
fn event(
    request: &RecentRequest,
    rules: &RuleSets,
    identities: &Identities,
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
            identities
                .pseudonyms()
                .of_address(ip, set.map_or(64, RuleSet::ipv6_prefix))
        }
    });
    put("ip", ip.map(|ip| ip.to_string().into()));
    let user = request.user.as_ref().map(|user| {
        if is_named {
            user.clone()
        } else {
            identities.pseudonym_of(&KeyPart::User, user)
        }
    });
    put("user", user.map(Value::from));
    let api_key = request
        .api_key
        .as_ref()
        .map(|key| identities.pseudonym_of(&KeyPart::ApiKey, key));
    put("api_key", api_key.map(Value::from));
    put("method", text(&request.method));
    let path = request.path.as_deref().map(|path| {
        let (bare, _) = path.split_once('?').unwrap_or((path, ""));
        let is_key = set.is_none_or(|set| counts_by(set, &KeyPart::Path));
        match (is_named, hides && is_key) {
            (true, _) => path.to_owned(),
            (false, true) => identities.pseudonym_of(&KeyPart::Path, bare),
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
                identities.pseudonym_of(&part, value)
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
