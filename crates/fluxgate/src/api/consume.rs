//! `POST /v1/consume`: one bucket, whose parameters may come with the call.

use axum::extract::{Request, State};
use fluxgate_core::json::{JsonWriter, Text};
use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{AdHocDecision, AdHocKey, Band, Decision, HoldId, Outcome};
use fluxgate_http::Problem;
use fluxgate_http::server::{Listener, Origin};
use serde_json::value::RawValue;

use super::body;
use super::body::missing;
use super::identity::Identity;
use super::response::{ApiResult, json_response};
use super::state::SharedState;

mod rate;

/// The maximum length of `rule_id` for limits that come with the call.
const MAX_NAME_BYTES: usize = 200;

/// Returns the key of a limit that comes with the call.
pub(super) fn ad_hoc_key(name: &str, identity: &[&str]) -> Result<AdHocKey, Problem> {
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
        let bound = format!("`rule_id` must have 1 to {MAX_NAME_BYTES} bytes");
        return Err(Problem::bad_request(bound));
    }
    Ok(AdHocKey::named(name, identity))
}

/// Returns the bucket with this capacity and rate.
pub(super) fn band(capacity: &str, refill_tokens_per_second: &str) -> Result<Band, Problem> {
    rate::band(capacity, refill_tokens_per_second).map_err(Problem::bad_request)
}

/// Splits the name of a configured rule into its set and its id.
pub(super) fn split_rule_id(rule_id: &str) -> Result<(&str, &str), Problem> {
    rule_id.rsplit_once('/').ok_or_else(|| {
        Problem::bad_request(
            "`rule_id` must be \"SET/RULE\" if `capacity` and `refill_tokens_per_second` are \
             not given",
        )
    })
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsumeRequest<'a> {
    #[serde(borrow)]
    rule_id: Text<'a>,
    #[serde(borrow, default)]
    identity: Option<Identity<'a>>,
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
    #[serde(borrow)]
    capacity: Option<&'a RawValue>,
    #[serde(borrow)]
    refill_tokens_per_second: Option<&'a RawValue>,
}

/// The response.
struct ConsumeResponse {
    allowed: bool,
    retry_after: Retry,
    /// `None` if the store failed or the rule is in shadow mode.
    remaining: Option<u64>,
    outcome: Outcome,
    /// The hold of slots, and how soon it must be renewed.
    hold: Option<(HoldId, Micros)>,
}

/// Charges a bucket.
pub(super) async fn consume(State(api): SharedState, request: Request) -> ApiResult {
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body).await?;
    let call: ConsumeRequest<'_> = body::parse(&body)?;
    let cost = body::parse_cost(call.cost)?;
    let name = &*call.rule_id.0;
    let identity = call.identity.unwrap_or_default();
    let identity = identity.values();
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    let consumed = match (call.capacity, call.refill_tokens_per_second) {
        (Some(capacity), Some(refill)) => {
            let band = band(capacity.get(), refill.get())?;
            let key = ad_hoc_key(name, &identity)?;
            let taken = api.engine.take(&key, &band, cost.unwrap_or(1), &origin);
            ConsumeResponse::from(taken.await)
        }
        (None, None) => {
            let (rule_set, rule) = split_rule_id(name)?;
            let engine = &api.engine;
            let decided = engine.consume(rule_set, rule, &identity, cost, &origin);
            ConsumeResponse::from(decided.await?)
        }
        (None, Some(_)) => return Err(missing("capacity")),
        (Some(_), None) => return Err(missing("refill_tokens_per_second")),
    };
    let mut json = Vec::with_capacity(80);
    consumed.write(&mut json);
    Ok(json_response(json))
}

impl ConsumeResponse {
    fn write(&self, json: &mut Vec<u8>) {
        let mut json = JsonWriter(json);
        json.text(if self.allowed {
            "{\"allowed\":true,\"retry_after_ms\":"
        } else {
            "{\"allowed\":false,\"retry_after_ms\":"
        });
        let wait = self.retry_after.after();
        json.number_or_null(wait.map(|wait| wait.ceil_millis()));
        json.text(",\"remaining\":");
        json.number_or_null(self.remaining);
        if self.outcome.is_store_failure() {
            json.text(",\"outcome\":\"");
            json.text(self.outcome.name());
            json.text("\"");
        }
        if let Some((hold, renew_within)) = self.hold {
            json.hold(hold, renew_within);
        }
        json.text("}");
    }
}

impl From<AdHocDecision> for ConsumeResponse {
    fn from(decision: AdHocDecision) -> Self {
        Self {
            allowed: decision.allowed,
            retry_after: decision.retry_after,
            remaining: decision.remaining,
            outcome: decision.outcome,
            hold: None,
        }
    }
}

impl From<Decision> for ConsumeResponse {
    fn from(decision: Decision) -> Self {
        Self {
            allowed: decision.allowed(),
            retry_after: decision.retry(),
            remaining: decision.remaining(),
            outcome: decision.outcome(),
            hold: decision.hold().map(|hold| (hold, decision.renew_within())),
        }
    }
}
