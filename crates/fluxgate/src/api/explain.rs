//! `POST /v1/explain`: why a request is decided as it is. `fluxgate explain` does the same
//! without a server.

use axum::extract::{Request, State};
use fluxgate_core::store::Micros;
use fluxgate_core::task::ready;
use fluxgate_core::text::duration_text;
use fluxgate_core::{
    BandExplanation, BandState, Explanation, Limiter, MemoryStore, RuleAction, RuleExplanation,
    RuleMode, RuleSets,
};
use fluxgate_http::Problem;
use serde::Serialize;

use super::body;
use super::check::{CheckRequest, only_rule_set};
use super::response::{ApiResult, DecisionForm, json_response, units_on_lease, write_decision};
use super::state::SharedState;
use crate::admin::Role;
use crate::engine::{EngineError, REDACTED};

/// Explains the decision about a request without charging it.
pub(super) async fn explain(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let body = body::read(&head.headers, body).await?;
    let request: CheckRequest<'_> = body::parse(&body)?;
    let (rule_set, context) = request.into_context(|| only_rule_set(&api, "rule_set"))?;
    let engine = &api.engine;
    let explained = engine.ready_limiter()?.explain(&rule_set, &context).await;
    let mut explanation = engine.record_failure(explained)?;
    if api.admin.hides_identities {
        hide_identities(&mut explanation);
    }
    Ok(json_response(explanation_json(&explanation)))
}

/// Explains the decision about the request in a body, on an empty store in memory.
/// `rule_set` is the rule set of a request that names none.
pub(crate) fn explain_offline(
    rules: RuleSets,
    body: &[u8],
    rule_set: Option<&str>,
) -> Result<Explanation, Problem> {
    let request: CheckRequest<'_> = body::parse(body)?;
    let only = rules.only().map(|set| set.name().to_owned());
    let default = rule_set.map(str::to_owned).or(only);
    let default = || default.ok_or_else(|| body::missing("rule_set"));
    let (rule_set, context) = request.into_context(default)?;
    let limiter = Limiter::new(rules, MemoryStore::default());
    let explanation = ready(limiter.explain(&rule_set, &context));
    explanation.map_err(|error| EngineError::Call(error).into())
}

/// Returns an explanation as JSON.
pub(crate) fn explanation_json(explanation: &Explanation) -> Vec<u8> {
    let mut json = b"{\"decision\":".to_vec();
    write_decision(&mut json, &explanation.decision, DecisionForm::Explanation);
    json.extend_from_slice(b",\"rules\":");
    let rules: Vec<_> = explanation.rules.iter().map(RuleJson::from).collect();
    // Texts and numbers can always be written as JSON, and writing to memory does not fail.
    let _ = serde_json::to_writer(&mut json, &rules);
    json.push(b'}');
    json
}

/// Returns the name of a mode in rules.
pub(crate) fn mode_name(mode: RuleMode) -> &'static str {
    match mode {
        RuleMode::Enforce => "enforce",
        RuleMode::Shadow => "shadow",
    }
}

/// Returns the name of an action in rules, unless the rule is a limit.
pub(crate) fn action_name(action: RuleAction) -> Option<&'static str> {
    (action != RuleAction::Limit).then(|| action.name())
}

fn hide_identities(explanation: &mut Explanation) {
    for rule in &mut explanation.rules {
        if let Some(identity) = &mut rule.identity {
            *identity = REDACTED.into();
        }
    }
}

#[derive(Serialize)]
struct RuleJson<'a> {
    rule: &'a str,
    matched: bool,
    failed: Option<&'a str>,
    /// The list that `failed` is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<&'a str>,
    /// `None` if it is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    identity: Option<&'a str>,
    missing: Vec<String>,
    applies: bool,
    mode: &'static str,
    group: Option<GroupJson<'a>>,
    rollout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseJson>,
    bands: Vec<BandJson<'a>>,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    name: &'a str,
    place: usize,
    instead: Option<&'a str>,
}

#[derive(Serialize)]
struct LeaseJson {
    share: String,
    #[serde(rename = "for")]
    span: String,
}

#[derive(Serialize)]
struct BandJson<'a> {
    band: &'a str,
    limit: u64,
    /// `None` if its units are not leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_lease: Option<u64>,
    before: StateJson,
    after: StateJson,
    denies: bool,
}

#[derive(Serialize)]
struct StateJson {
    remaining: u64,
    reset_after_ms: u64,
}

impl<'a> From<&'a RuleExplanation> for RuleJson<'a> {
    fn from(rule: &'a RuleExplanation) -> Self {
        Self {
            rule: &rule.rule,
            matched: rule.failed.is_none(),
            failed: rule.failed.as_deref(),
            list: rule.list.as_deref(),
            action: action_name(rule.action),
            identity: rule.identity.as_deref(),
            missing: rule.missing.iter().map(ToString::to_string).collect(),
            applies: rule.applies,
            mode: mode_name(rule.mode),
            group: rule.group.as_ref().map(|group| GroupJson {
                name: &group.name,
                place: group.place,
                instead: group.instead.as_deref(),
            }),
            rollout: rule.rollout.as_ref().map(ToString::to_string),
            lease: rule.lease.map(|lease| LeaseJson {
                share: lease.share().to_string(),
                span: duration_text(lease.span()),
            }),
            bands: rule.bands.iter().map(BandJson::from).collect(),
        }
    }
}

impl<'a> From<&'a BandExplanation> for BandJson<'a> {
    fn from(band: &'a BandExplanation) -> Self {
        Self {
            band: band.before.band.id(),
            limit: band.before.band.capacity(),
            on_lease: units_on_lease(&band.before),
            before: StateJson::from(&band.before),
            after: StateJson::from(&band.after),
            denies: band.denies,
        }
    }
}

impl From<&BandState> for StateJson {
    fn from(state: &BandState) -> Self {
        Self {
            remaining: state.remaining,
            reset_after_ms: Micros::from(state.reset_after).ceil_millis(),
        }
    }
}
