//! The report of the service, or of the local decision in its place.

use std::time::SystemTime;

use bytes::Bytes;
use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{Decision, HoldId, Outcome, Timestamp};
use fluxgate_http::Report;
use http::{HeaderMap, Response, StatusCode};
use serde::Deserialize;

use super::pool::CallError;

/// The report on a request, from the service or from the local decision in its place.
#[derive(Clone, Debug)]
pub struct RemoteReport(pub(super) DecidedBy);

#[derive(Clone, Debug)]
pub(super) enum DecidedBy {
    Service(CheckResponse),
    Local(Decision),
}

impl RemoteReport {
    fn map<T>(
        &self,
        service: impl FnOnce(&CheckResponse) -> T,
        local: impl FnOnce(&Decision) -> T,
    ) -> T {
        match &self.0 {
            DecidedBy::Service(response) => service(response),
            DecidedBy::Local(decision) => local(decision),
        }
    }
}

impl Report for RemoteReport {
    fn allowed(&self) -> bool {
        self.map(|response| response.allowed, Decision::allowed)
    }

    fn outcome(&self) -> Outcome {
        match &self.0 {
            DecidedBy::Service(response) => response.outcome,
            DecidedBy::Local(decision) => match decision.outcome() {
                // A rule that decides by itself decides the same everywhere.
                outcome @ (Outcome::Forbidden | Outcome::Exempt) => outcome,
                // The local rules decided in place of the service's.
                _ if decision.rules().next().is_some() => Outcome::Fallback,
                outcome => outcome,
            },
        }
    }

    fn forbidden_status(&self) -> Option<StatusCode> {
        match &self.0 {
            DecidedBy::Service(response) => response.forbidden_status,
            DecidedBy::Local(decision) => Report::forbidden_status(decision),
        }
    }

    fn delay(&self) -> Micros {
        self.map(|response| response.delay, Decision::delay_micros)
    }

    fn worth_waiting(&self) -> Option<Micros> {
        self.map(|_| None, Decision::worth_waiting)
    }

    fn max_wait(&self) -> Option<Micros> {
        self.map(|_| None, Decision::max_wait)
    }

    fn after(self, waited: Micros) -> Self {
        Self(match self.0 {
            DecidedBy::Service(response) => DecidedBy::Service(response.after(waited)),
            DecidedBy::Local(decision) => DecidedBy::Local(decision.after(waited)),
        })
    }

    fn into_denied(self) -> Self {
        Self(match self.0 {
            DecidedBy::Service(response) => DecidedBy::Service(response.into_denied()),
            DecidedBy::Local(decision) => DecidedBy::Local(decision.into_denied()),
        })
    }

    fn limit(&self) -> Option<u64> {
        self.map(|response| response.limit, Decision::limit)
    }

    fn remaining(&self) -> Option<u64> {
        self.map(|response| response.remaining, Decision::remaining)
    }

    fn reset_after(&self) -> Micros {
        self.map(|response| response.reset_after, Decision::reset_micros)
    }

    fn reset_at(&self) -> Timestamp {
        self.map(|response| response.reset_at, Decision::reset_timestamp)
    }

    fn retry_after(&self) -> Retry {
        self.map(|response| response.retry_after, Decision::retry)
    }

    fn write_policies(&self, text: &mut Vec<u8>) {
        match &self.0 {
            DecidedBy::Service(response) => text.extend_from_slice(&response.policies),
            DecidedBy::Local(decision) => decision.write_policies(text),
        }
    }

    fn write_rate_limit(&self, text: &mut Vec<u8>) {
        match &self.0 {
            DecidedBy::Service(response) => text.extend_from_slice(&response.rate_limit),
            DecidedBy::Local(decision) => decision.write_rate_limit(text),
        }
    }

    fn for_each_violated(&self, mut visit: impl FnMut(&str, &str)) {
        match &self.0 {
            DecidedBy::Service(response) => {
                let ids = response.violated.iter().filter_map(|id| id.split_once('/'));
                ids.for_each(|(rule, band)| visit(rule, band));
            }
            DecidedBy::Local(decision) => decision.for_each_violated(visit),
        }
    }
}

const RESET: &str = "x-ratelimit-reset";
const POLICY: &str = "ratelimit-policy";
const RATE_LIMIT: &str = "ratelimit";
/// The status of the rule that forbids a request.
const STATUS: &str = "x-fluxgate-status";

/// The decision of the service.
#[derive(Clone, Debug)]
pub(super) struct CheckResponse {
    pub(super) allowed: bool,
    pub(super) outcome: Outcome,
    pub(super) forbidden_status: Option<StatusCode>,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) retry_after: Retry,
    pub(super) reset_after: Micros,
    pub(super) reset_at: Timestamp,
    pub(super) delay: Micros,
    /// The reported band, as `rule/band`.
    reported: Option<String>,
    pub(super) violated: Vec<String>,
    /// The reservation, to cancel it.
    pub(super) reservation: Option<HoldId>,
    /// The hold of the charge, and how soon it must be renewed.
    pub(super) hold: Option<(HoldId, Micros)>,
    /// The value of `RateLimit-Policy`.
    pub(super) policies: Vec<u8>,
    /// The value of `RateLimit`.
    pub(super) rate_limit: Vec<u8>,
}

/// The body of the response.
#[derive(Deserialize)]
struct Body {
    allowed: bool,
    outcome: String,
    #[serde(deserialize_with = "required")]
    rule: Option<String>,
    #[serde(deserialize_with = "required")]
    band: Option<String>,
    #[serde(deserialize_with = "required")]
    limit: Option<u64>,
    #[serde(deserialize_with = "required")]
    remaining: Option<u64>,
    #[serde(deserialize_with = "required")]
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
    delay_ms: u64,
    violated: Vec<String>,
    /// Present only if there is a delay.
    reservation: Option<String>,
    /// Present only if the charge is held.
    hold: Option<String>,
    hold_ms: Option<u64>,
}

/// Requires a field that may be null. By default serde treats an absent field as null.
fn required<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

impl CheckResponse {
    /// Parses a response, and checks that it is consistent.
    pub(super) fn parse(response: &Response<Bytes>) -> Result<Self, CallError> {
        let body = serde_json::from_slice(response.body()).ok();
        body.and_then(|body| Self::from_parts(body, response.headers()))
            .ok_or(CallError::InvalidResponse)
    }

    fn from_parts(body: Body, headers: &HeaderMap) -> Option<Self> {
        let outcomes = Outcome::ALL.into_iter();
        let outcome = { outcomes }.find(|outcome| outcome.name() == body.outcome)?;
        let is_consistent = match outcome {
            Outcome::Allowed
            | Outcome::ShadowDenied
            | Outcome::NoRule
            | Outcome::Exempt
            | Outcome::FailedOpen => body.allowed,
            Outcome::Denied | Outcome::Never | Outcome::Forbidden | Outcome::FailedClosed => {
                !body.allowed
            }
            Outcome::Fallback => true,
            _ => false,
        };
        let reported = match (&body.rule, &body.band) {
            (Some(rule), Some(band)) => Some(format!("{rule}/{band}")),
            _ => None,
        };
        let ids = body.violated.iter().chain(&reported);
        let is_valid = is_consistent && { ids }.all(|id| is_id(id));
        is_valid.then_some(())?;
        let retry_after = match body.retry_after_ms {
            Some(millis) => Retry::After(Micros::from_millis(millis)?),
            None => Retry::Never,
        };
        let reset_after = Micros::from_millis(body.reset_after_ms)?;
        let hold = match (body.hold, body.hold_ms) {
            (Some(id), Some(millis)) => Some((id.parse().ok()?, Micros::from_millis(millis)?)),
            _ => None,
        };
        let reservation = body.reservation.map(|id| id.parse()).transpose().ok()?;
        Some(Self {
            allowed: body.allowed,
            outcome,
            forbidden_status: (outcome == Outcome::Forbidden).then(|| forbidden_status(headers)),
            limit: body.limit,
            remaining: body.remaining,
            retry_after,
            reset_after,
            reset_at: reset_at(headers).unwrap_or_else(|| from_now(reset_after)),
            delay: Micros::from_millis(body.delay_ms)?,
            reported,
            violated: body.violated,
            reservation,
            hold,
            policies: join_lines(headers, POLICY),
            rate_limit: join_lines(headers, RATE_LIMIT),
        })
    }

    /// Denies a delayed request that got no permit to wait.
    pub(super) fn into_denied(mut self) -> Self {
        self.allowed = false;
        if self.outcome != Outcome::Fallback {
            self.outcome = Outcome::Denied;
        }
        self.retry_after = Retry::After(self.delay);
        self.delay = Micros::ZERO;
        self.remaining = self.remaining.map(|_| 0);
        // The response does not name the band to wait for. The reported one has the least left.
        self.violated = self.reported.iter().cloned().collect();
        self
    }

    /// Advances the response by the time that the request has waited.
    pub(super) fn after(mut self, waited: Micros) -> Self {
        let left = self.reset_after.get().saturating_sub(waited.get());
        self.reset_after = Micros::new(left);
        if let Some(at) = self.rate_limit.windows(3).rposition(|it| it == b";t=") {
            let from = at + 3;
            let digits = self.rate_limit[from..].iter();
            let to = from + digits.take_while(|byte| byte.is_ascii_digit()).count();
            let seconds = self.reset_after.ceil_secs().to_string();
            self.rate_limit.splice(from..to, seconds.into_bytes());
        }
        self
    }
}

/// Returns the status of a forbidden request. A proxy may have removed the header.
fn forbidden_status(headers: &HeaderMap) -> StatusCode {
    let status = headers.get(STATUS).map(|status| status.as_bytes());
    let status = status.and_then(|status| StatusCode::from_bytes(status).ok());
    let status = status.filter(StatusCode::is_client_error);
    status.unwrap_or(StatusCode::FORBIDDEN)
}

/// Returns when the reported band is full again, by the service's clock.
fn reset_at(headers: &HeaderMap) -> Option<Timestamp> {
    let seconds: u64 = headers.get(RESET)?.to_str().ok()?.parse().ok()?;
    Timestamp::from_micros(seconds.checked_mul(1_000_000)?)
}

/// Estimates when the reported band is full again, if a proxy has removed the header.
#[expect(
    clippy::disallowed_methods,
    reason = "`X-RateLimit-Reset` is a time of day, and decides nothing"
)]
fn from_now(after: Micros) -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = (now.unwrap_or_default() + after.as_duration()).as_micros();
    Timestamp::saturating_from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Returns whether a text is `rule/band` and needs no escapes.
fn is_id(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let parts = text.split_once('/');
    parts.is_some_and(|(rule, band)| rule.bytes().chain(band.bytes()).all(is_good))
}

/// Joins all lines of a header.
fn join_lines(headers: &HeaderMap, name: &str) -> Vec<u8> {
    let lines: Vec<_> = headers
        .get_all(name)
        .iter()
        .map(|it| it.as_bytes())
        .collect();
    lines.join(&b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_end_of_the_wait() {
        let body = r#"{"allowed":true,"outcome":"allowed","rule":"r","band":"b","limit":1,"remaining":0,
            "retry_after_ms":0,"reset_after_ms":20000,"delay_ms":10000,"violated":[]}"#;
        let response = Response::builder().header(RATE_LIMIT, "\"r/b\";r=0;t=20");
        let response = CheckResponse::parse(&response.body(Bytes::from(body)).unwrap());
        let response = response.unwrap().after(Micros::new(10_000_001));
        assert_eq!(response.reset_after.get(), 9_999_999);
        assert_eq!(response.rate_limit, b"\"r/b\";r=0;t=10");
    }
}
