//! `POST /v1/refund`, `POST /v1/reset` and `GET /v1/state`.

use axum::extract::{Request, State};
use fluxgate_core::store::Micros;
use fluxgate_core::{BandState, IdentityRef, LimiterError, StoreError};
use fluxgate_http::Problem;
use http::request::Parts;

use super::fields::{AdminFields, ResetFields, Target, TargetIdentity};
use crate::admin::{AuditedChange, Role, may_have_been_applied, reserve_audit_line};
use crate::api::audit::audit_change;
use crate::api::blocking_pool::run_to_completion;
use crate::api::body::{self, missing};
use crate::api::response::{ApiResult, json_response, units_on_lease};
use crate::api::state::SharedState;
use crate::engine::{Engine, EngineError};

/// The id of the only band of a limit that comes with the call.
const CALL_BAND: &str = "b0";
/// The identity of a global rule.
const NO_IDENTITY: IdentityRef<'_> = IdentityRef::Values(&[]);

/// Refunds units to an identity.
pub(super) async fn refund(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let caller = api.admin.authorize(&head, Role::Operator)?;
    let body = body::read(&head.headers, body).await?;
    let audit = reserve_audit_line().await?;
    run_to_completion(async move {
        let engine = &api.engine;
        let fields: AdminFields<'_> = body::parse(&body)?;
        let (target, units) = (fields.target(engine.identities())?, fields.units()?);
        let (refunded, described);
        match &target {
            Target::Set(_) => return Err(missing("rule")),
            Target::Rule {
                rule_set,
                rule,
                identity,
            } => {
                let identity = identity
                    .as_ref()
                    .map_or(NO_IDENTITY, TargetIdentity::as_ref);
                let limiter = engine.ready_limiter()?;
                let result = limiter.refund_of(rule_set, rule, identity, units).await;
                refunded = engine.record_failure(result);
                described = engine.identity_in_logs(rule_set, rule, identity);
                api.events.forget_refunded(rule_set, rule, identity).await;
            }
            Target::Call(limit) => {
                let (key, band) = (&limit.key, limit.band()?);
                let result = engine.limiter().refund_ad_hoc(key, band, units).await;
                refunded = engine.record_failure(result);
                described = engine.ad_hoc_key_in_logs(key);
            }
        }
        let is_uncertain = is_uncertain(&refunded);
        if refunded.is_ok() || is_uncertain {
            let change = AuditedChange {
                action: "refund",
                identity: Some(&described),
                units: Some(units),
                is_uncertain,
                ..target.change()
            };
            let by = (&caller, &head.headers);
            audit_change(&api, audit, by, &change, target.identity());
        }
        Ok(json_response(format!("{{\"remaining\":{}}}", refunded?)))
    })
    .await
}

/// Deletes the state of an identity, of a rule, or of all rules of a set.
pub(super) async fn reset(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let caller = api.admin.authorize(&head, Role::Operator)?;
    let body = body::read(&head.headers, body).await?;
    let audit = reserve_audit_line().await?;
    run_to_completion(async move {
        let engine = &api.engine;
        let ResetFields(fields) = body::parse(&body)?;
        let target = fields.target(engine.identities())?;
        let (result, described);
        match &target {
            Target::Set(rule_set) => {
                api.admin.authorize(&head, Role::Admin)?;
                result = engine.ready_limiter()?.reset_set(rule_set).await;
                api.events.forget_rules(rule_set, None).await;
                described = None;
            }
            Target::Rule {
                rule_set,
                rule,
                identity,
            } => {
                let identity = identity.as_ref().map(TargetIdentity::as_ref);
                let limiter = engine.ready_limiter()?;
                let events = &api.events;
                result = match identity {
                    Some(identity) => {
                        let shares = events.shares_before_reset(rule_set, rule, identity).await;
                        let reset = limiter.reset_of(rule_set, rule, identity).await;
                        events.forget_reset(shares).await;
                        reset
                    }
                    None => {
                        let reset = limiter.reset_rule(rule_set, rule).await;
                        events.forget_rules(rule_set, Some(rule)).await;
                        reset
                    }
                };
                described = identity.map(|it| engine.identity_in_logs(rule_set, rule, it));
            }
            Target::Call(limit) => {
                let band = limit.band_for_reset()?;
                let reset = engine.limiter().reset_ad_hoc(&limit.key, &band).await;
                result = reset.map_err(LimiterError::Store);
                described = Some(engine.ad_hoc_key_in_logs(&limit.key));
            }
        }
        let reset = engine.record_failure(result);
        // A reset of a whole rule takes many steps; some may have been applied.
        let is_uncertain =
            is_uncertain(&reset) || (described.is_none() && store_error(&reset).is_some());
        if reset.is_ok() || is_uncertain {
            let change = AuditedChange {
                action: "reset",
                identity: described.as_deref(),
                reset: reset.as_ref().ok().copied(),
                is_uncertain,
                ..target.change()
            };
            let by = (&caller, &head.headers);
            audit_change(&api, audit, by, &change, target.identity());
        }
        Ok(json_response(format!("{{\"reset\":{}}}", reset?)))
    })
    .await
}

fn store_error<T>(result: &Result<T, EngineError>) -> Option<&StoreError> {
    match result {
        Err(EngineError::Call(LimiterError::Store(error))) => Some(error),
        _ => None,
    }
}

/// Returns whether the store failed, but may have applied the change.
pub(super) fn is_uncertain<T>(result: &Result<T, EngineError>) -> bool {
    store_error(result).is_some_and(may_have_been_applied)
}

/// Returns what an identity has left in each band of a rule.
pub(super) async fn state(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let fields = AdminFields::from_query(head.uri.query().unwrap_or_default())?;
    let target = fields.target(api.engine.identities())?;
    let bands = bands_json(&target, &states_of(&api.engine, &target).await?);
    Ok(json_response(format!("{{\"bands\":{bands}}}")))
}

/// Returns the bands of the limit that a call refers to.
pub(super) async fn states_of(
    engine: &Engine,
    target: &Target<'_>,
) -> Result<Vec<BandState>, Problem> {
    match target {
        Target::Set(_) => Err(missing("rule")),
        Target::Rule {
            rule_set,
            rule,
            identity,
        } => {
            let identity = identity_of(identity.as_ref());
            let states = engine.ready_limiter()?;
            let states = states.state_of(rule_set, rule, identity).await;
            Ok(engine.record_failure(states)?)
        }
        Target::Call(limit) => {
            let state = engine.limiter().ad_hoc_state(&limit.key, limit.band()?);
            Ok(vec![engine.record_failure(state.await)?])
        }
    }
}

/// Returns the identity of a rule for the limiter. A global rule has none.
pub(super) fn identity_of<'i>(identity: Option<&'i TargetIdentity<'_>>) -> IdentityRef<'i> {
    identity.map_or(NO_IDENTITY, TargetIdentity::as_ref)
}

/// Returns the bands of a limit as a JSON list.
pub(super) fn bands_json(target: &Target<'_>, states: &[BandState]) -> String {
    let bands = states.iter().map(|state| match target {
        Target::Call(_) => band_json(CALL_BAND, state),
        _ => band_json(state.band.id(), state),
    });
    format!("[{}]", bands.collect::<Vec<_>>().join(","))
}

/// Returns a band as JSON. Ids need no escaping: they consist of letters, digits, `_`, `-`
/// and `.`.
fn band_json(id: &str, state: &BandState) -> String {
    let on_lease =
        units_on_lease(state).map_or_else(String::new, |units| format!(",\"on_lease\":{units}"));
    format!(
        "{{\"band\":\"{id}\",\"limit\":{},\"remaining\":{},\"reset_after_ms\":{}{on_lease}}}",
        state.band.limit().capacity(),
        state.remaining,
        Micros::from(state.reset_after).ceil_millis()
    )
}
