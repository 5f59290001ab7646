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

/// The names of the fields that have two spellings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldNames {
    rule_id: &'static str,
    rate: &'static str,
    /// In the response.
    retry_after: &'static str,
}

impl FieldNames {
    /// The names of this API.
    pub(super) const SNAKE_CASE: Self = Self {
        rule_id: "rule_id",
        rate: "refill_tokens_per_second",
        retry_after: "retry_after_ms",
    };
    /// The names that OpenFluxGate uses.
    pub(super) const CAMEL_CASE: Self = Self {
        rule_id: "ruleId",
        rate: "refillTokensPerSecond",
        retry_after: "retryAfterMs",
    };

    /// Returns the key of a limit that comes with the call.
    pub(super) fn ad_hoc_key(self, name: &str, identity: &[&str]) -> Result<AdHocKey, Problem> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            let bound = format!("`{}` must have 1 to {MAX_NAME_BYTES} bytes", self.rule_id);
            return Err(Problem::bad_request(bound));
        }
        Ok(AdHocKey::named(name, identity))
    }

    /// Returns the bucket with this capacity and rate.
    pub(super) fn band(self, capacity: &str, rate: &str) -> Result<Band, Problem> {
        rate::band(capacity, rate, self.rate).map_err(Problem::bad_request)
    }

    /// Splits the name of a configured rule into its set and its id.
    pub(super) fn split_rule_id(self, rule_id: &str) -> Result<(&str, &str), Problem> {
        rule_id.rsplit_once('/').ok_or_else(|| {
            Problem::bad_request(format!(
                "`{}` must be \"SET/RULE\" if `capacity` and `{}` are not given",
                self.rule_id, self.rate
            ))
        })
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsumeRequest<'a> {
    #[serde(borrow)]
    rule_id: Option<Text<'a>>,
    #[serde(borrow, rename = "ruleId")]
    camel_rule_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    identity: Option<Identity<'a>>,
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
    #[serde(borrow)]
    capacity: Option<&'a RawValue>,
    #[serde(borrow)]
    refill_tokens_per_second: Option<&'a RawValue>,
    #[serde(borrow, rename = "refillTokensPerSecond")]
    camel_rate: Option<&'a RawValue>,
}

impl<'a> ConsumeRequest<'a> {
    /// Returns the spelling of its fields: one camel case name is enough for the response to have
    /// them.
    fn names(&self) -> FieldNames {
        if self.camel_rule_id.is_some() || self.camel_rate.is_some() {
            FieldNames::CAMEL_CASE
        } else {
            FieldNames::SNAKE_CASE
        }
    }

    fn rule_id(&self) -> Result<&str, Problem> {
        let name = one_spelling([&self.rule_id, &self.camel_rule_id], |names| names.rule_id)?;
        let Text(name) = name.ok_or_else(|| missing(self.names().rule_id))?;
        Ok(name)
    }

    fn rate(&self) -> Result<Option<&'a RawValue>, Problem> {
        let rate = [&self.refill_tokens_per_second, &self.camel_rate];
        Ok(one_spelling(rate, |names| names.rate)?.copied())
    }
}

/// Returns the value of a field in snake case or in camel case. Refuses a field in both.
fn one_spelling<T>(
    [snake, camel]: [&Option<T>; 2],
    name: fn(FieldNames) -> &'static str,
) -> Result<Option<&T>, Problem> {
    if snake.is_some() && camel.is_some() {
        let [snake, camel] = [FieldNames::SNAKE_CASE, FieldNames::CAMEL_CASE].map(name);
        let detail = format!("`{camel}` is another name of `{snake}`; give one of them");
        return Err(Problem::bad_request(detail));
    }
    Ok(snake.as_ref().or(camel.as_ref()))
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
    let (names, rule_id) = (call.names(), call.rule_id()?);
    let identity = call.identity.as_ref().map(Identity::values);
    let identity = identity.unwrap_or_default();
    let origin = Origin::with_headers(Listener::Api, &head.headers);
    let consumed = match (call.capacity, call.rate()?) {
        (Some(capacity), Some(rate)) => {
            let band = names.band(capacity.get(), rate.get())?;
            let key = names.ad_hoc_key(rule_id, &identity)?;
            let taken = api.engine.take(&key, &band, cost.unwrap_or(1), &origin);
            ConsumeResponse::from(taken.await)
        }
        (None, None) => {
            let (rule_set, rule) = names.split_rule_id(rule_id)?;
            let engine = &api.engine;
            let decided = engine.consume(rule_set, rule, &identity, cost, &origin);
            ConsumeResponse::from(decided.await?)
        }
        (None, Some(_)) => return Err(missing("capacity")),
        (Some(_), None) => return Err(missing(names.rate)),
    };
    let mut json = Vec::with_capacity(80);
    consumed.write(names, &mut json);
    Ok(json_response(json))
}

impl ConsumeResponse {
    fn write(&self, names: FieldNames, json: &mut Vec<u8>) {
        let mut json = JsonWriter(json);
        json.text(if self.allowed {
            "{\"allowed\":true,\""
        } else {
            "{\"allowed\":false,\""
        });
        json.text(names.retry_after);
        json.text("\":");
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
