//! `POST /v1/refund`, `POST /v1/reset` and `GET /v1/state`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::{BandState, LimiterError, StoreError};

use super::fields::{Fields, Target, WithoutUnits, missing};
use super::{Api, body, json, to_its_end};
use crate::admin::{Change, Role, may_be_done};
use crate::engine::EngineError;
use crate::http::Problem;

/// The name of the one band of a limit that comes with the call.
const CALL_BAND: &str = "b0";

/// Gives units back to somebody.
pub(super) async fn refund(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Operator)?;
    let body = body::read(body).await?;
    let place = api.admin.audit_place().await?;
    to_its_end(async move {
        let engine = &api.engine;
        let fields: Fields<'_> = body::parse(&body)?;
        let (target, units) = (fields.target()?, fields.units()?);
        let (refunded, change, whose);
        match target {
            Target::Set(_) => return Err(missing("rule")),
            Target::Rule {
                rule_set,
                rule,
                identity,
            } => {
                // A global rule has no parts to name.
                let identity = identity.unwrap_or_default();
                refunded = engine.refund(rule_set, rule, &identity, units).await;
                whose = engine.identity_in_logs(rule_set, rule, &identity);
                change = Change {
                    rule_set,
                    rule: Some(rule),
                    ..Change::default()
                };
            }
            Target::Call(limit) => {
                let (subject, band) = (&limit.subject, limit.band()?);
                refunded = engine.refund_ad_hoc(subject, band, units).await;
                whose = engine.ad_hoc_key_in_logs(subject);
                change = Change {
                    rule_id: limit.rule_id,
                    ..Change::default()
                };
            }
        }
        let is_unknown = refunded
            .as_ref()
            .is_err_and(|it| failure(it).is_some_and(may_be_done));
        if refunded.is_ok() || is_unknown {
            let change = Change {
                what: "refund",
                identity: Some(&whose),
                units: Some(units),
                is_unknown,
                ..change
            };
            api.admin.note(place, &caller, &head.headers, &change);
        }
        Ok(json(format!("{{\"remaining\":{}}}", refunded?)))
    })
    .await
}

/// Deletes the state of an identity, of a rule, or of all rules of a set.
pub(super) async fn reset(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Operator)?;
    let body = body::read(body).await?;
    let place = api.admin.audit_place().await?;
    to_its_end(async move {
        let engine = &api.engine;
        let WithoutUnits(fields) = body::parse(&body)?;
        let (reset, change, whose);
        match fields.target()? {
            Target::Set(rule_set) => {
                api.admin.admit_change(&head, Role::Admin)?;
                reset = engine.reset_set(rule_set).await;
                whose = None;
                change = Change {
                    rule_set,
                    ..Change::default()
                };
            }
            Target::Rule {
                rule_set,
                rule,
                identity,
            } => {
                let identity = identity.as_deref();
                reset = engine.reset(rule_set, rule, identity).await;
                whose = identity.map(|it| engine.identity_in_logs(rule_set, rule, it));
                change = Change {
                    rule_set,
                    rule: Some(rule),
                    ..Change::default()
                };
            }
            Target::Call(limit) => {
                reset = {
                    let band = limit.band_of_any_numbers()?;
                    engine.reset_ad_hoc(&limit.subject, &band).await
                };
                whose = Some(engine.ad_hoc_key_in_logs(&limit.subject));
                change = Change {
                    rule_id: limit.rule_id,
                    ..Change::default()
                };
            }
        }
        // A whole rule takes many steps, of which some may be done.
        let is_unknown = reset.as_ref().is_err_and(|it| {
            failure(it).is_some_and(|error| whose.is_none() || may_be_done(error))
        });
        if reset.is_ok() || is_unknown {
            let change = Change {
                what: "reset",
                identity: whose.as_deref(),
                reset: reset.as_ref().ok().copied(),
                is_unknown,
                ..change
            };
            api.admin.note(place, &caller, &head.headers, &change);
        }
        Ok(json(format!("{{\"reset\":{}}}", reset?)))
    })
    .await
}

/// What the store said, if it was the store that failed.
pub(super) fn failure(error: &EngineError) -> Option<&StoreError> {
    match error {
        EngineError::Call(LimiterError::Store(error)) => Some(error),
        _ => None,
    }
}

/// Tells what somebody has left in each band of a rule.
pub(super) async fn state(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    api.admin.admit(&head, Role::Viewer)?;
    let fields = Fields::from_query(head.uri.query().unwrap_or_default())?;
    let bands: Vec<_> = match fields.target()? {
        Target::Set(_) => return Err(missing("rule")),
        Target::Rule {
            rule_set,
            rule,
            identity,
        } => {
            let identity = identity.unwrap_or_default();
            let bands = api.engine.state(rule_set, rule, &identity).await?;
            bands.iter().map(|it| band_json(it.band.id(), it)).collect()
        }
        Target::Call(limit) => {
            let state = api
                .engine
                .ad_hoc_state(&limit.subject, limit.band()?)
                .await?;
            vec![band_json(CALL_BAND, &state)]
        }
    };
    Ok(json(format!("{{\"bands\":[{}]}}", bands.join(","))))
}

/// Ids are made of letters, digits, `_`, `-` and `.`.
fn band_json(id: &str, state: &BandState) -> String {
    format!(
        "{{\"band\":\"{id}\",\"limit\":{},\"remaining\":{},\"reset_after_ms\":{}}}",
        state.band.limit().capacity(),
        state.remaining,
        state.reset_after.ceil_millis()
    )
}
