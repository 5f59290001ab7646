//! `POST /v1/settle`, `/v1/renew` and `/v1/release`: holds of earlier checks; `/v1/cancel`:
//! reservations of theirs.
//!
//! No token is needed: the id alone permits a caller to end the hold or the reservation.

use std::borrow::Cow;

use axum::extract::{Request, State};
use fluxgate_core::json::{JsonWriter, Text, Texts};
use fluxgate_core::{HoldId, Settled, Settlement};
use fluxgate_http::Problem;
use http::StatusCode;
use serde_json::value::RawValue;

use super::body;
use super::body::missing;
use super::response::{ApiResult, json_response};
use super::state::SharedState;
use crate::engine::Engine;
use crate::hold_span::{HoldText, parse_hold_span};

/// How many holds one call may renew.
const MAX_HOLDS: usize = 1_000;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleRequest<'a> {
    #[serde(borrow)]
    hold: Option<Text<'a>>,
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
    #[serde(borrow)]
    attributes: Option<Texts<'a>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewRequest<'a> {
    #[serde(borrow)]
    hold: Option<Text<'a>>,
    /// Several, in place of one.
    #[serde(borrow)]
    holds: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    hold_for: Option<HoldText<'a>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseRequest<'a> {
    #[serde(borrow)]
    hold: Option<Text<'a>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelRequest<'a> {
    #[serde(borrow)]
    reservation: Option<Text<'a>>,
}

/// Settles a hold with the real cost.
pub(super) async fn settle(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body).await?;
    let call: SettleRequest<'_> = body::parse(&body)?;
    let hold = id(call.hold)?;
    let attributes = call.attributes.map(costs).transpose()?;
    let attributes = attributes.as_ref().map(|costs| {
        let costs = costs.iter().map(|(name, cost)| (&**name, *cost));
        costs.collect::<Vec<_>>()
    });
    let settlement = match (body::parse_cost(call.cost)?, &attributes) {
        (Some(_), Some(_)) => {
            let detail = "expected `cost` or `attributes`, found both";
            return Err(Problem::bad_request(detail));
        }
        (Some(cost), None) => Settlement::Cost(cost),
        (None, Some(costs)) => Settlement::Attributes(costs),
        (None, None) => Settlement::AsReserved,
    };
    let mut json = Vec::with_capacity(64);
    write_settled(api.engine.settle(hold, settlement).await?, &mut json)?;
    Ok(json_response(json))
}

/// Releases a hold: its slots are free, and its units return. Simple requests take the
/// [fast path](super::fast_path) instead.
pub(super) async fn release(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body).await?;
    let mut json = Vec::with_capacity(64);
    release_hold(&api.engine, &body, &mut json).await?;
    Ok(json_response(json))
}

/// Releases the hold that a body names, and appends the answer to `json`.
pub(super) async fn release_hold(
    engine: &Engine,
    body: &[u8],
    json: &mut Vec<u8>,
) -> Result<(), Problem> {
    let call: ReleaseRequest<'_> = body::parse(body)?;
    let hold = id(call.hold)?;
    let settled = engine.settle(hold, Settlement::RELEASE).await?;
    write_settled(settled, json)
}

/// Cancels the reservation of a check whose request will not be made.
pub(super) async fn cancel(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body).await?;
    let call: CancelRequest<'_> = body::parse(&body)?;
    let text = call.reservation.ok_or_else(|| missing("reservation"))?;
    // No reservation has a text that is not an id.
    let id = text.0.parse().map_err(|_| no_reservation())?;
    let engine = &api.engine;
    let cancelled = engine.limiter().cancel_reservation(id).await;
    if engine.record_failure(cancelled)? {
        Ok(json_response("{\"cancelled\":true}"))
    } else {
        Err(no_reservation())
    }
}

/// Extends holds.
pub(super) async fn renew(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body).await?;
    let call: RenewRequest<'_> = body::parse(&body)?;
    let span = call.hold_for.ok_or_else(|| missing("hold_for"))?;
    let span = parse_hold_span("hold_for", &span.0).map_err(Problem::bad_request)?;
    let ids = match (call.hold, call.holds) {
        (None, None) => return Err(Problem::bad_request("`hold` or `holds` is missing")),
        (hold, None) => {
            let renewed = api.engine.renew(&[id(hold)?], span).await?;
            return match renewed.first() {
                Some(true) => Ok(json_response("{\"renewed\":true}")),
                _ => Err(no_hold()),
            };
        }
        (Some(_), Some(_)) => {
            let detail = "expected `hold` or `holds`, found both";
            return Err(Problem::bad_request(detail));
        }
        (None, Some(holds)) if holds.len() > MAX_HOLDS => {
            let detail = format!("`holds` has more than {MAX_HOLDS} items");
            return Err(Problem::bad_request(detail));
        }
        (None, Some(holds)) => holds,
    };
    // No hold has a text that is not an id.
    let ids: Vec<Option<HoldId>> = ids.iter().map(|text| text.0.parse().ok()).collect();
    let known: Vec<_> = ids.iter().copied().flatten().collect();
    let mut renewed = api.engine.renew(&known, span).await?.into_iter();
    let each: Vec<_> = ids
        .iter()
        .map(|id| id.is_some() && renewed.next() == Some(true))
        .collect();
    Ok(json_response(
        format!("{{\"renewed\":{each:?}}}").replace(' ', ""),
    ))
}

fn write_settled(settled: Option<Settled>, json: &mut Vec<u8>) -> Result<(), Problem> {
    let Settled { charged, uncharged } = settled.ok_or_else(no_hold)?;
    let mut out = JsonWriter(json);
    out.text("{\"settled\":true,\"charged\":");
    out.number(charged);
    out.text(",\"uncharged\":");
    out.number(uncharged);
    out.text("}");
    Ok(())
}

/// Reads the id of a hold. No hold has a text that is not an id.
fn id(text: Option<Text<'_>>) -> Result<HoldId, Problem> {
    let text = text.ok_or_else(|| missing("hold"))?;
    text.0.parse().map_err(|_| no_hold())
}

fn no_hold() -> Problem {
    let detail = "there is no such hold: it was settled, has expired or never existed";
    Problem::new(StatusCode::NOT_FOUND, detail)
}

fn no_reservation() -> Problem {
    let detail = "there is no such reservation: it was cancelled, its delay has passed or it \
                  never existed";
    Problem::new(StatusCode::NOT_FOUND, detail)
}

/// Reads the costs of attributes.
fn costs(Texts(attributes): Texts<'_>) -> Result<Vec<(Cow<'_, str>, u64)>, Problem> {
    let costs = attributes.into_iter().map(|(name, value)| {
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse().ok().filter(|_| is_number) {
            Some(cost) => Ok((name, cost)),
            None => Err(Problem::bad_request(format!(
                "attribute `{name}` must be a whole number from 0, not {value:?}"
            ))),
        }
    });
    costs.collect()
}
