//! `GET /v1/recent`: the last requests, in the form that `/v1/simulate` takes.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use fluxgate_core::{KeyPart, Outcome, RequestContext, RuleAction, RuleSet, RuleSets};
use fluxgate_http::Problem;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::identity::open_handle;
use super::query;
use super::response::{ApiResult, compressed_json};
use super::state::SharedState;
use crate::admin::Role;
use crate::identities::{Identities, Pseudonyms};
use crate::telemetry::{MAX_RECENT, RecentRequest};

/// Returns the recorded requests, the oldest first.
pub(super) async fn recent(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let query = RecentQuery::read(head.uri.query().unwrap_or_default())?;
    let identities = Arc::clone(api.engine.identities());
    if let Some(handle) = &query.handle {
        open_handle(&identities, handle)?;
    }
    let filter = identities.filter(&query.identity);
    let filter = filter.map_err(|error| Problem::bad_request(format!("`identity`: {error}")))?;
    let instance = api.instances.id().to_owned();
    let telemetry = Arc::clone(api.engine.telemetry());
    let rules = api.engine.rules().unwrap_or_default();
    let names = api.engine.identities().pseudonyms();
    let hides = api.admin.hides_identities;
    let is_named = telemetry.names_identities() && !hides;
    let work = move || {
        let (mut events, mut decisions) = (Vec::new(), Vec::new());
        // The last ones that pass the filters, the oldest first.
        for request in telemetry.recent(MAX_RECENT).iter().rev() {
            if events.len() >= query.count {
                break;
            }
            if !query.wants(request) {
                continue;
            }
            let has_identity = query.identity.is_empty() || {
                let (parts, values) = parts_of(request);
                let values: Vec<_> = values.iter().map(|value| &**value).collect();
                identities.matches_values(&filter, &parts, &values)
            };
            let handle = handle_of(request, &rules, &identities);
            if !has_identity || query.handle.is_some() && query.handle != handle {
                continue;
            }
            events.push(event(request, &rules, &names, is_named, hides));
            decisions.push(json!({
                "outcome": request.outcome.map(Outcome::name),
                "rule": request.rule,
                "handle": handle,
            }));
        }
        events.reverse();
        decisions.reverse();
        let list = json!({
            "records": telemetry.is_recording(),
            "identities": is_named,
            // Each instance keeps its own.
            "scope": "instance",
            "instance": instance,
            "events": events,
            "decisions": decisions,
        });
        Ok(list.to_string())
    };
    let json = api.read_pool.run(work).await?;
    Ok(compressed_json(&head.headers, json))
}

/// Which requests are wanted.
#[derive(Debug)]
struct RecentQuery {
    count: usize,
    rule_set: Option<String>,
    rule: Option<String>,
    /// `PART=VALUE` texts.
    identity: Vec<String>,
    handle: Option<String>,
    outcome: Option<Outcome>,
}

impl RecentQuery {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self {
            count: MAX_RECENT,
            rule_set: None,
            rule: None,
            identity: Vec::new(),
            handle: None,
            outcome: None,
        };
        for field in query::fields(query) {
            let (name, value) = field?;
            match &*name {
                "n" => wanted.count = query::count("n", &value, MAX_RECENT)?,
                "rule_set" => wanted.rule_set = Some(value),
                "rule" => wanted.rule = Some(value),
                "identity" => wanted.identity.push(value),
                "handle" => wanted.handle = Some(value),
                "outcome" => {
                    let known = Outcome::ALL.into_iter().find(|it| it.name() == value);
                    let names = Outcome::ALL.map(Outcome::name).join(", ");
                    let known = known.ok_or_else(|| query::expected("outcome", &names, &value));
                    wanted.outcome = Some(known?);
                }
                _ => return Err(query::unknown(&name)),
            }
        }
        Ok(wanted)
    }

    /// Returns whether a request has the wanted rule and outcome.
    fn wants(&self, request: &RecentRequest) -> bool {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is(&self.rule_set, &request.rule_set)
            && is(&self.rule, &request.rule)
            && (self.outcome.is_none() || self.outcome == request.outcome)
    }
}

/// Returns the handle of the identity that the reported rule counted.
fn handle_of(request: &RecentRequest, rules: &RuleSets, identities: &Identities) -> Option<String> {
    let (rule_set, rule) = (request.rule_set.as_deref()?, request.rule.as_deref()?);
    let set = rules.get(rule_set)?;
    let known = set
        .rule(rule)
        .filter(|rule| rule.action() == RuleAction::Limit)?;
    let identity = set.identity_of(known, &context_of(request))?;
    let identity = identities.stored(rule_set, rule, &identity);
    identities.handle(rule_set, rule, &identity)
}

/// Returns all that a rule could count in a request.
fn parts_of(request: &RecentRequest) -> (Vec<KeyPart>, Vec<Cow<'_, str>>) {
    let named = [
        (KeyPart::User, &request.user),
        (KeyPart::ApiKey, &request.api_key),
        (KeyPart::Method, &request.method),
        (KeyPart::Path, &request.path),
    ];
    let named = named.into_iter();
    let named = named.filter_map(|(part, value)| Some((part, value.as_deref()?.into())));
    let ip = request.ip.map(|ip| (KeyPart::Ip, ip.to_string().into()));
    let headers = request.headers.iter().map(|(name, value)| {
        (
            KeyPart::Header(name.to_ascii_lowercase().into()),
            value.as_str().into(),
        )
    });
    let attributes = request.attributes.iter().map(|(name, value)| {
        (
            KeyPart::Attribute(name.as_str().into()),
            value.as_str().into(),
        )
    });
    let all = named.chain(ip).chain(headers).chain(attributes);
    all.filter(|(_, value): &(KeyPart, Cow<'_, str>)| !value.is_empty())
        .unzip()
}

/// Returns the context of a recorded request.
pub(super) fn context_of(request: &RecentRequest) -> RequestContext<'_> {
    let pairs = |pairs: &'_ [(String, String)]| -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.clone().into(), value.clone().into()))
            .collect()
    };
    let mut context = RequestContext::builder()
        .headers(pairs(&request.headers))
        .attributes(pairs(&request.attributes));
    if let Some(ip) = request.ip {
        context = context.ip(ip);
    }
    if let Some(user) = &request.user {
        context = context.user(user);
    }
    if let Some(api_key) = &request.api_key {
        context = context.api_key(api_key);
    }
    if let Some(method) = &request.method {
        context = context.method(method);
    }
    if let Some(path) = &request.path {
        context = context.path(path);
    }
    context.build()
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
