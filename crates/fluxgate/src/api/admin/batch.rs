//! `POST /v1/state/batch`: the states of many identities, each with its name and its handle.

use axum::extract::{Request, State};
use fluxgate_core::key::encoded_identity;
use fluxgate_core::store::Micros;
use fluxgate_core::{Algorithm, BandState, IdentityRef, StoredIdentity};
use fluxgate_http::Problem;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::fields::{AdminFields, ResetFields, Target, TargetIdentity};
use super::state::{bands_json, identity_of, states_of};
use crate::admin::Role;
use crate::api::body;
use crate::api::response::{ApiResult, json_response};
use crate::api::state::SharedState;
use crate::engine::Engine;

/// How many identities a batch may have.
const MAX_STATES: usize = 1_000;
/// Handles are longer than the names of identities.
const MAX_BYTES: usize = 512 * 1024;
/// How many states the store is asked for at once. All of them have to arrive before the deadline of
/// one.
const STATES_AT_ONCE: usize = 250;
/// Of how many slots of an identity the answer has the ends.
const MAX_SLOTS: u64 = 20;

/// The body of a call. Its items have the fields of a state.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateBatch<'a> {
    #[serde(borrow)]
    states: Vec<ResetFields<'a>>,
}

/// Which identity of which rule a state belongs to.
#[derive(Serialize)]
struct StateName<'a> {
    rule_set: &'a str,
    rule: &'a str,
    /// As the live view names it.
    identity: String,
    handle: Option<String>,
    /// When the rule alone lets the next request pass; `None` if it never does.
    retry_after_ms: Option<u64>,
    /// When the slots that are taken end, unless they are renewed or released.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slots_end_after_ms: Vec<u64>,
}

/// Returns the states of many identities, each with its bands or an error of its own, in order.
pub(super) async fn batch(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let body = body::read_up_to(MAX_BYTES, &head.headers, body).await?;
    let StateBatch { states } = body::parse(&body)?;
    if states.len() > MAX_STATES {
        let detail = format!("`states` has more than {MAX_STATES} items");
        return Err(Problem::bad_request(detail));
    }
    let mut items = Vec::with_capacity(states.len());
    for group in states.chunks(STATES_AT_ONCE) {
        // They are ready together, so the store gets them together.
        let states = group.iter().map(|fields| item_json(&api.engine, &fields.0));
        items.extend(join_all(states).await.into_iter().map(|item| {
            item.unwrap_or_else(|problem| {
                let status = problem.status().as_u16();
                json!({ "error": { "status": status, "detail": problem.detail() } }).to_string()
            })
        }));
    }
    let items = items.join(",");
    Ok(json_response(format!("{{\"states\":[{items}]}}")))
}

/// Returns the state of the limit that the fields refer to, and the identity that it belongs to.
async fn item_json(engine: &Engine, fields: &AdminFields<'_>) -> Result<String, Problem> {
    let target = fields.target(engine.identities())?;
    let states = states_of(engine, &target).await?;
    let bands = bands_json(&target, &states);
    let Target::Rule {
        rule_set,
        rule,
        identity,
    } = &target
    else {
        return Ok(format!("{{\"bands\":{bands}}}"));
    };
    let mut retry_after = Some(Micros::ZERO);
    if states.iter().any(|state| state.remaining == 0) {
        let (limiter, identity) = (engine.ready_limiter()?, identity_of(identity.as_ref()));
        let explained = limiter.explain_identity(rule_set, rule, identity, None);
        let decision = engine.record_failure(explained.await)?.decision;
        retry_after = decision.retry_after().map(Micros::from);
    }
    let mut slot_ends = Vec::new();
    if states.iter().any(has_taken_slots) {
        let (limiter, identity) = (engine.ready_limiter()?, identity_of(identity.as_ref()));
        let ends = limiter.slot_ends(rule_set, rule, identity, MAX_SLOTS);
        slot_ends = engine.record_failure(ends.await)?;
    }
    let identities = engine.identities();
    let stored = stored_identity(engine, rule_set, rule, identity.as_ref());
    let name = stored.map(|stored| StateName {
        rule_set,
        rule,
        identity: identities.show_live(&stored),
        handle: identities.handle(rule_set, rule, &stored),
        retry_after_ms: retry_after.map(Micros::ceil_millis),
        slots_end_after_ms: { slot_ends.into_iter() }
            .map(|end| Micros::from(end).ceil_millis())
            .collect(),
    });
    // Texts and numbers can always be written as JSON. The name is one object with the bands.
    let name = name.and_then(|name| serde_json::to_string(&name).ok());
    let name = name.as_deref().and_then(|name| name.strip_prefix('{'));
    Ok(match name {
        Some(name) => format!("{{\"bands\":{bands},{name}"),
        None => format!("{{\"bands\":{bands}}}"),
    })
}

/// Returns whether slots of a concurrency limit are taken.
fn has_taken_slots(state: &BandState) -> bool {
    let limit = state.band.limit();
    limit.algorithm() == Algorithm::Concurrency && state.remaining < limit.capacity()
}

/// Returns an identity in the form in which the store keeps it; `None` if the rules have changed in
/// the meantime.
fn stored_identity(
    engine: &Engine,
    rule_set: &str,
    rule: &str,
    identity: Option<&TargetIdentity<'_>>,
) -> Option<StoredIdentity> {
    let values = match identity_of(identity) {
        IdentityRef::Stored(stored) => return Some(stored.clone()),
        IdentityRef::Values(values) => values,
        _ => return None,
    };
    let rules = engine.limiter().rules();
    let set = rules.get(rule_set)?;
    let key = set.rule(rule)?.key();
    let encoded = encoded_identity(key, values, set.ipv6_prefix()).ok()?;
    Some(engine.identities().stored(rule_set, rule, &encoded))
}
