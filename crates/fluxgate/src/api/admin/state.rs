//! `POST /v1/refund`, `POST /v1/reset` and `GET /v1/state`.

use axum::extract::{Request, State};
use fluxgate_core::store::Micros;
use fluxgate_core::{BandState, LimiterError, StoreError};
use http::request::Parts;

use super::fields::{AdminFields, ResetFields, Target};
use crate::admin::{
    AuditedChange, Role, may_have_been_applied, reserve_audit_line, write_audit_line,
};
use crate::api::blocking_pool::run_to_completion;
use crate::api::body::{self, missing};
use crate::api::response::{ApiResult, json_response, units_on_lease};
use crate::api::state::SharedState;
use crate::engine::EngineError;

/// The id of the only band of a limit that comes with the call.
const CALL_BAND: &str = "b0";

/// Refunds units to an identity.
pub(super) async fn refund(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let caller = api.admin.authorize(&head, Role::Operator)?;
    let body = body::read(&head.headers, body).await?;
    let audit = reserve_audit_line().await?;
    run_to_completion(async move {
        let engine = &api.engine;
        let fields: AdminFields<'_> = body::parse(&body)?;
        let (target, units) = (fields.target()?, fields.units()?);
        let (refunded, described);
        match &target {
            Target::Set(_) => return Err(missing("rule")),
            Target::Rule {
                rule_set,
                rule,
                identity,
            } => {
                // A global rule has no identities.
                let identity = identity.as_deref().unwrap_or_default();
                let limiter = engine.ready_limiter()?;
                let result = limiter.refund(rule_set, rule, identity, units).await;
                refunded = engine.record_failure(result);
                described = engine.identity_in_logs(rule_set, rule, identity);
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
            write_audit_line(audit, &caller, &head.headers, &change);
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
        let target = fields.target()?;
        let (result, described);
        match &target {
            Target::Set(rule_set) => {
                api.admin.authorize(&head, Role::Admin)?;
                result = engine.ready_limiter()?.reset_set(rule_set).await;
                described = None;
            }
            Target::Rule {
                rule_set,
                rule,
                identity,
            } => {
                let identity = identity.as_deref();
                let limiter = engine.ready_limiter()?;
                result = match identity {
                    Some(identity) => limiter.reset(rule_set, rule, identity).await,
                    None => limiter.reset_rule(rule_set, rule).await,
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
            write_audit_line(audit, &caller, &head.headers, &change);
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
    let engine = &api.engine;
    let bands: Vec<_> = match fields.target()? {
        Target::Set(_) => return Err(missing("rule")),
        Target::Rule {
            rule_set,
            rule,
            identity,
        } => {
            let identity = identity.unwrap_or_default();
            let limiter = engine.ready_limiter()?;
            let bands = limiter.state(rule_set, rule, &identity).await;
            let bands = engine.record_failure(bands)?;
            bands.iter().map(|it| band_json(it.band.id(), it)).collect()
        }
        Target::Call(limit) => {
            let state = engine.limiter().ad_hoc_state(&limit.key, limit.band()?);
            let state = engine.record_failure(state.await)?;
            vec![band_json(CALL_BAND, &state)]
        }
    };
    Ok(json_response(format!(
        "{{\"bands\":[{}]}}",
        bands.join(",")
    )))
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
