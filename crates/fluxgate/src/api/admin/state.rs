//! `POST /v1/refund`, `POST /v1/reset` and `GET /v1/state`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::{LimiterError, StoreError};

use super::fields::{Fields, WithoutUnits};
use super::{Api, Problem, body, json, to_its_end};
use crate::admin::{Change, Role, may_be_done};
use crate::engine::EngineError;

/// Gives units back to somebody.
pub(super) async fn refund(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Operator)?;
    let body = body::read(body).await?;
    to_its_end(async move {
        let fields: Fields<'_> = body::parse(&body)?;
        let (rule_set, rule, units) = (fields.rule_set()?, fields.rule()?, fields.units()?);
        // A global rule has no parts to name.
        let identity = fields.identity.as_ref().map(|it| it.values());
        let identity = identity.unwrap_or_default();
        let refunded = api.engine.refund(rule_set, rule, &identity, units).await;
        let is_unknown = refunded
            .as_ref()
            .is_err_and(|it| failure(it).is_some_and(may_be_done));
        if refunded.is_ok() || is_unknown {
            let whose = api.engine.identity_in_logs(rule_set, rule, &identity);
            let change = Change {
                what: "refund",
                rule_set,
                rule: Some(rule),
                identity: Some(&whose),
                units: Some(units),
                is_unknown,
                ..Change::default()
            };
            api.admin.note(&caller, &head.headers, &change);
        }
        Ok(json(format!("{{\"remaining\":{}}}", refunded?)))
    })
    .await
}

/// Forgets what somebody has used, or everybody of a rule.
pub(super) async fn reset(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Operator)?;
    let body = body::read(body).await?;
    to_its_end(async move {
        let WithoutUnits(fields) = body::parse(&body)?;
        let (rule_set, rule) = (fields.rule_set()?, fields.rule()?);
        let identity = fields.identity.as_ref().map(|it| it.values());
        let identity = identity.as_deref();
        let reset = api.engine.reset(rule_set, rule, identity).await;
        // A whole rule takes many steps, of which some may be done.
        let is_unknown = reset.as_ref().is_err_and(|it| {
            failure(it).is_some_and(|error| identity.is_none() || may_be_done(error))
        });
        if reset.is_ok() || is_unknown {
            let whose = identity.map(|it| api.engine.identity_in_logs(rule_set, rule, it));
            let change = Change {
                what: "reset",
                rule_set,
                rule: Some(rule),
                identity: whose.as_deref(),
                reset: reset.as_ref().ok().copied(),
                is_unknown,
                ..Change::default()
            };
            api.admin.note(&caller, &head.headers, &change);
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
    let identity = fields.identity.as_ref().map(|it| it.values());
    let identity = identity.unwrap_or_default();
    let (rule_set, rule) = (fields.rule_set()?, fields.rule()?);
    let bands = api.engine.state(rule_set, rule, &identity).await?;
    let bands: Vec<_> = bands
        .iter()
        .map(|state| {
            // Ids are made of letters, digits, `_`, `-` and `.`.
            format!(
                "{{\"band\":\"{}\",\"limit\":{},\"remaining\":{},\"reset_after_ms\":{}}}",
                state.band.id(),
                state.band.limit().capacity(),
                state.remaining,
                state.reset_after.ceil_millis()
            )
        })
        .collect();
    Ok(json(format!("{{\"bands\":[{}]}}", bands.join(","))))
}
