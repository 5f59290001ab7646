//! `POST /v1/consume`: one bucket, whose parameters may come with the call.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::json::{JsonWriter, Text, whole_number};
use fluxgate_core::{AdHocDecision, AdHocKey, Band, Decision, Outcome, Retry};
use http::header::CONTENT_TYPE;
use serde_json::value::RawValue;

use super::check::JSON;
use super::identity::Identity;
use super::{Api, body};
use crate::http::{Listener, Origin, Problem};

mod rate;

/// What the names of limits that come with the call may have at most.
const MOST_NAME_BYTES: usize = 200;

/// Returns who a limit counts that comes with the call under this name.
pub(super) fn subject(name: &str, identity: &[&str]) -> Result<AdHocKey, Problem> {
    if !(1..=MOST_NAME_BYTES).contains(&name.len()) {
        let bound = format!("`rule_id` must have 1 to {MOST_NAME_BYTES} bytes");
        return Err(Problem::bad_request(bound));
    }
    Ok(AdHocKey::named(name, identity))
}

/// Returns the bucket of this capacity and rate.
pub(super) fn band(capacity: &str, refill_tokens_per_second: &str) -> Result<Band, Problem> {
    rate::band(capacity, refill_tokens_per_second).map_err(Problem::bad_request)
}

/// Returns the set and the id in the name of a configured rule.
pub(super) fn configured(rule_id: &str) -> Result<(&str, &str), Problem> {
    rule_id.split_once('/').ok_or_else(|| {
        Problem::bad_request(
            "`rule_id` must be \"SET/RULE\" where no `capacity` and \
             `refill_tokens_per_second` are given",
        )
    })
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked<'a> {
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

/// What is answered.
struct Consumed {
    allowed: bool,
    retry_after: Retry,
    /// `None` where nothing is reported: the store failed, or the rule is a
    /// shadow.
    remaining: Option<u64>,
    outcome: Outcome,
}

/// Charges a bucket.
pub(super) async fn consume(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let body = body::read(body).await?;
    let asked: Asked<'_> = body::parse(&body)?;
    let cost = match asked.cost {
        Some(cost) => Some(
            whole_number(cost.get())
                .ok_or_else(|| Problem::bad_request("`cost` must be a whole number from 0"))?,
        ),
        None => None,
    };
    let name = &*asked.rule_id.0;
    let identity = asked.identity.unwrap_or_default();
    let identity = identity.values();
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    let consumed = match (asked.capacity, asked.refill_tokens_per_second) {
        (Some(capacity), Some(refill)) => {
            let band = band(capacity.get(), refill.get())?;
            let subject = subject(name, &identity)?;
            let taken = api.engine.take(&subject, &band, cost.unwrap_or(1), &origin);
            Consumed::from(taken.await)
        }
        (None, None) => {
            let (rule_set, rule) = configured(name)?;
            let engine = &api.engine;
            let decided = engine.consume(rule_set, rule, &identity, cost, &origin);
            Consumed::from(decided.await?)
        }
        (None, Some(_)) => return Err(Problem::bad_request("`capacity` is missing")),
        (Some(_), None) => {
            return Err(Problem::bad_request(
                "`refill_tokens_per_second` is missing",
            ));
        }
    };
    let mut json = Vec::with_capacity(80);
    consumed.write(&mut json);
    let mut response = Response::new(json.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

impl Consumed {
    fn write(&self, json: &mut Vec<u8>) {
        let mut json = JsonWriter(json);
        json.text(match self.allowed {
            true => "{\"allowed\":true,\"retry_after_ms\":",
            false => "{\"allowed\":false,\"retry_after_ms\":",
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
        json.text("}");
    }
}

impl From<AdHocDecision> for Consumed {
    fn from(decision: AdHocDecision) -> Self {
        Self {
            allowed: decision.allowed,
            retry_after: decision.retry_after,
            remaining: decision.remaining,
            outcome: decision.outcome,
        }
    }
}

impl From<Decision> for Consumed {
    fn from(decision: Decision) -> Self {
        Self {
            allowed: decision.allowed(),
            retry_after: decision.retry_after(),
            remaining: decision.remaining(),
            outcome: decision.outcome(),
        }
    }
}
