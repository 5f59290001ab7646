//! What the service says.

use std::time::SystemTime;

use bytes::Bytes;
use fluxgate_core::{Micros, Outcome, Retry, Timestamp};
use http::{HeaderMap, Response};
use serde::Deserialize;

use super::connections::ExchangeError;

const RESET: &str = "x-ratelimit-reset";
const POLICY: &str = "ratelimit-policy";
const RATE_LIMIT: &str = "ratelimit";

/// The service's answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) outcome: Outcome,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) retry_after: Retry,
    pub(super) reset_after: Micros,
    pub(super) reset_at: Timestamp,
    pub(super) delay: Micros,
    /// As `rule/band`.
    reported: Option<String>,
    pub(super) violated: Vec<String>,
    /// What the service must be told to cancel what was reserved.
    pub(super) reservation: Option<String>,
    /// The members of the lists of the IETF's draft.
    pub(super) policies: Vec<u8>,
    pub(super) rate_limit: Vec<u8>,
}

/// The same, as it is written. What is absent is not an answer.
#[derive(Deserialize)]
struct Written {
    allowed: bool,
    outcome: String,
    #[serde(deserialize_with = "present")]
    rule: Option<String>,
    #[serde(deserialize_with = "present")]
    band: Option<String>,
    #[serde(deserialize_with = "present")]
    limit: Option<u64>,
    #[serde(deserialize_with = "present")]
    remaining: Option<u64>,
    #[serde(deserialize_with = "present")]
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
    delay_ms: u64,
    violated: Vec<String>,
    /// Only where there is a delay.
    reservation: Option<String>,
}

/// May be null, but must be there: without this, serde takes absence for null.
fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

impl Answer {
    /// Reads an answer; anything that cannot be one is an error.
    pub(super) fn read(response: Response<Bytes>) -> Result<Self, ExchangeError> {
        let written: Written =
            serde_json::from_slice(response.body()).map_err(|_| ExchangeError::BadAnswer)?;
        Self::of(written, response.headers()).ok_or(ExchangeError::BadAnswer)
    }

    fn of(written: Written, headers: &HeaderMap) -> Option<Self> {
        let outcomes = Outcome::ALL.into_iter();
        let outcome = { outcomes }.find(|outcome| outcome.name() == written.outcome)?;
        let can_be = match outcome {
            Outcome::Allowed | Outcome::ShadowDenied | Outcome::NoRule | Outcome::FailedOpen => {
                written.allowed
            }
            Outcome::Denied | Outcome::Never | Outcome::FailedClosed => !written.allowed,
            Outcome::Fallback => true,
        };
        let reported = match (&written.rule, &written.band) {
            (Some(rule), Some(band)) => Some(format!("{rule}/{band}")),
            _ => None,
        };
        let ids = written.violated.iter().chain(&reported);
        let can_be = can_be && { ids }.all(|id| is_id(id));
        can_be.then_some(())?;
        let retry_after = match written.retry_after_ms {
            Some(millis) => Retry::After(Micros::from_millis(millis)?),
            None => Retry::Never,
        };
        let reset_after = Micros::from_millis(written.reset_after_ms)?;
        Some(Self {
            allowed: written.allowed,
            outcome,
            limit: written.limit,
            remaining: written.remaining,
            retry_after,
            reset_after,
            reset_at: reset_at(headers).unwrap_or_else(|| from_now(reset_after)),
            delay: Micros::from_millis(written.delay_ms)?,
            reported,
            violated: written.violated,
            reservation: written.reservation,
            policies: members(headers, POLICY),
            rate_limit: members(headers, RATE_LIMIT),
        })
    }

    /// The same request, which was to wait and found no place to.
    pub(super) fn into_denied(mut self) -> Self {
        self.allowed = false;
        if self.outcome != Outcome::Fallback {
            self.outcome = Outcome::Denied;
        }
        self.retry_after = Retry::After(self.delay);
        self.delay = Micros::ZERO;
        self.remaining = self.remaining.map(|_| 0);
        // Which band it would have waited for is not said; the reported one has
        // the least left.
        self.violated = self.reported.iter().cloned().collect();
        self
    }

    /// The same, when so long has passed since.
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

/// When the service says that the reported band is full again.
fn reset_at(headers: &HeaderMap) -> Option<Timestamp> {
    let seconds: u64 = headers.get(RESET)?.to_str().ok()?.parse().ok()?;
    Timestamp::from_micros(seconds.checked_mul(1_000_000)?)
}

/// The instant after so long, for what stands between us and the service may have
/// taken its headers away.
#[expect(
    clippy::disallowed_methods,
    reason = "clients are told when to come back by the clock on their wall"
)]
fn from_now(after: Micros) -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = (now.unwrap_or_default() + after.as_duration()).as_micros();
    Timestamp::saturating_from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// `rule/band`, of characters that need no escape anywhere.
fn is_id(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let parts = text.split_once('/');
    parts.is_some_and(|(rule, band)| rule.bytes().chain(band.bytes()).all(is_good))
}

/// All lines of a header as one.
fn members(headers: &HeaderMap, name: &str) -> Vec<u8> {
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
    fn times_are_told_from_when_it_has_waited() {
        let body = r#"{"allowed":true,"outcome":"allowed","rule":"r","band":"b","limit":1,"remaining":0,
            "retry_after_ms":0,"reset_after_ms":20000,"delay_ms":10000,"violated":[]}"#;
        let response = Response::builder().header(RATE_LIMIT, "\"r/b\";r=0;t=20");
        let answer = Answer::read(response.body(Bytes::from(body)).unwrap()).unwrap();
        let answer = answer.after(Micros::new(10_000_001));
        assert_eq!(answer.reset_after.get(), 9_999_999);
        assert_eq!(answer.rate_limit, b"\"r/b\";r=0;t=10");
    }
}
