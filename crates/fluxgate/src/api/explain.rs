//! `POST /v1/explain`: why a request is decided as it is. `fluxgate explain` does the same
//! without a server.

use axum::extract::{Request, State};
use fluxgate_core::json::Text;
use fluxgate_core::store::Micros;
use fluxgate_core::task::ready;
use fluxgate_core::text::duration_text;
use fluxgate_core::{
    ActiveRule, BandExplanation, BandState, Explanation, IdentityRef, KeyPart, Limiter,
    MemoryStore, RequestContext, RuleAction, RuleExplanation, RuleMode, RuleSet, RuleSets,
};
use fluxgate_http::Problem;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body;
use super::check::{CheckRequest, only_rule_set};
use super::identity::{open_handle, refuse_shown};
use super::response::{ApiResult, DecisionForm, json_response, units_on_lease, write_decision};
use super::state::SharedState;
use crate::admin::Role;
use crate::engine::{EngineError, REDACTED};

/// Explains the decision about a request without charging it.
pub(super) async fn explain(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let body = body::read(&head.headers, body).await?;
    let (engine, identities) = (&api.engine, api.engine.identities());
    let limiter = engine.ready_limiter()?;
    // Read twice, because the two kinds of requests have different fields.
    let names_handle =
        serde_json::from_slice(&body).is_ok_and(|it: HandleProbe| it.handle.is_some());
    if names_handle {
        let HandleRequest {
            rule_set,
            handle,
            cost,
        } = body::parse(&body)?;
        let (rule_set, cost) = (&*rule_set.0, body::parse_cost(cost)?);
        let target = open_handle(identities, &handle.0)?;
        if target.rule_set != rule_set {
            let detail = format!(
                "`rule_set`: the handle belongs to rule set `{}`",
                target.rule_set
            );
            return Err(Problem::bad_request(detail));
        }
        let (rule, identity) = (&target.rule, &target.identity);
        let explained = limiter
            .explain_identity(rule_set, rule, IdentityRef::Stored(identity), cost)
            .await;
        let mut explanation = engine.record_failure(explained)?;
        for rule in &mut explanation.rules {
            rule.identity = Some(identities.show(identity));
        }
        let handles = [Some(handle.0.into_owned())];
        return Ok(json_response(explanation_json(&explanation, &handles)));
    }
    let request: CheckRequest<'_> = body::parse(&body)?;
    let (rule_set, context) = request.into_context(|| only_rule_set(&api, "rule_set"))?;
    if let Some(set) = limiter.rules().get(&rule_set) {
        refuse_shown_values(set, &context)?;
    }
    let explained = limiter.explain(&rule_set, &context).await;
    let mut explanation = engine.record_failure(explained)?;
    let handle_of = |rule: &RuleExplanation| {
        let identity = rule.encoded_identity.as_deref()?;
        let identity = identities.stored(&rule_set, &rule.rule, identity);
        identities.handle(&rule_set, &rule.rule, &identity)
    };
    let handles: Vec<_> = explanation.rules.iter().map(handle_of).collect();
    if api.admin.hides_identities {
        hide_identities(&mut explanation);
    }
    Ok(json_response(explanation_json(&explanation, &handles)))
}

/// Whether a request names its identity by a handle.
#[derive(Deserialize)]
struct HandleProbe {
    handle: Option<IgnoredAny>,
}

/// A request that names the identity of one rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HandleRequest<'a> {
    #[serde(borrow)]
    rule_set: Text<'a>,
    #[serde(borrow)]
    handle: Text<'a>,
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
}

/// Refuses values that responses show in place of others, if a rule counts or matches them: nobody
/// makes such a request, so its explanation would be wrong.
fn refuse_shown_values(set: &RuleSet, context: &RequestContext<'_>) -> Result<(), Problem> {
    let refuse = |part: KeyPart, value: &str| {
        let counts = |rule: &ActiveRule| rule.key().contains(&part) || rule.reads(&part);
        if set.rules().iter().any(counts) {
            return refuse_shown(&part.to_string(), value);
        }
        Ok(())
    };
    if let Some(user) = context.user() {
        refuse(KeyPart::User, user)?;
    }
    if let Some(api_key) = context.api_key() {
        refuse(KeyPart::ApiKey, api_key)?;
    }
    for (name, value) in context.headers() {
        refuse(KeyPart::Header(name.to_ascii_lowercase().into()), value)?;
    }
    for (name, value) in context.attributes() {
        refuse(KeyPart::Attribute(name.into()), value)?;
    }
    Ok(())
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
///
/// `handles` are those of the identities of the rules; none are known without a server.
pub(crate) fn explanation_json(explanation: &Explanation, handles: &[Option<String>]) -> Vec<u8> {
    let mut json = b"{\"decision\":".to_vec();
    write_decision(&mut json, &explanation.decision, DecisionForm::Explanation);
    json.extend_from_slice(b",\"rules\":");
    let mut rules: Vec<_> = explanation.rules.iter().map(RuleJson::from).collect();
    for (rule, handle) in rules.iter_mut().zip(handles) {
        rule.handle = handle.as_deref();
    }
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
    /// Finds the identity in other calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<&'a str>,
    missing: Vec<String>,
    /// What the rule does about missing parts, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_missing_key: Option<&'static str>,
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
            handle: None,
            missing: rule.missing.iter().map(ToString::to_string).collect(),
            on_missing_key: (!rule.missing.is_empty()).then(|| rule.on_missing_key.name()),
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
