//! Limits that come with a descriptor.

use std::time::Duration;

use fluxgate_core::store::{Micros, Retry, Timestamp};
use fluxgate_core::{AdHocDecision, Algorithm, Band, Limit, Outcome};
use fluxgate_http::Report;
use http::StatusCode;

use super::messages::{RateLimitOverride, Unit};

/// The highest limit of a rule. Higher ones count as this.
const MAX_LIMIT: u32 = 1_000_000_000;
const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The limit of a descriptor: so many requests in a fixed window of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnLimit {
    /// 0 if nothing is allowed.
    requests: u32,
    unit: Unit,
    seconds: u64,
}

impl OwnLimit {
    /// Reads a limit. Returns `None` if its unit is not known.
    pub(super) fn read(limit: RateLimitOverride) -> Option<Self> {
        let unit = Unit::try_from(limit.unit).ok()?;
        let seconds = match unit {
            Unit::Unknown => return None,
            Unit::Second => SECOND,
            Unit::Minute => MINUTE,
            Unit::Hour => HOUR,
            Unit::Day => DAY,
            // Envoy's month and year.
            Unit::Month => 30 * DAY,
            Unit::Year => 365 * DAY,
            Unit::Week => 7 * DAY,
        };
        Some(Self {
            requests: limit.requests_per_unit.min(MAX_LIMIT),
            unit,
            seconds,
        })
    }

    /// Returns the band that counts; `None` if the limit allows nothing.
    pub(super) fn band(self) -> Option<Band> {
        let window = Duration::from_secs(self.seconds);
        let limit = Limit::builder(Algorithm::FixedWindow, self.requests.into(), window);
        // All limits from 1 to the maximum and all windows of a unit are valid.
        Some(Band::new(self.name(), limit.build().ok()?))
    }

    /// Returns the number of requests.
    pub(super) fn requests(self) -> u32 {
        self.requests
    }

    /// Returns the unit.
    pub(super) fn unit(self) -> Unit {
        self.unit
    }

    /// Returns the name of the unit.
    pub(super) fn name(self) -> &'static str {
        match self.unit {
            Unit::Unknown => "unknown",
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Month => "month",
            Unit::Year => "year",
            Unit::Week => "week",
        }
    }
}

/// The decision on a descriptor by its own limit.
#[derive(Clone, Debug)]
pub(super) struct OwnDecision {
    pub(super) limit: OwnLimit,
    pub(super) decision: AdHocDecision,
    /// The time of the store.
    pub(super) at: Timestamp,
}

/// What stands in the place of a rule.
pub(super) const RULE: &str = "descriptor";

impl Report for OwnDecision {
    fn allowed(&self) -> bool {
        self.decision.allowed
    }

    fn outcome(&self) -> Outcome {
        self.decision.outcome
    }

    fn forbidden_status(&self) -> Option<StatusCode> {
        None
    }

    fn delay(&self) -> Micros {
        Micros::ZERO
    }

    fn worth_waiting(&self) -> Option<Micros> {
        None
    }

    fn into_denied(self) -> Self {
        self
    }

    fn after(self, _: Micros) -> Self {
        self
    }

    fn limit(&self) -> Option<u64> {
        self.decision.remaining.map(|_| self.limit.requests.into())
    }

    fn remaining(&self) -> Option<u64> {
        self.decision.remaining
    }

    fn reset_after(&self) -> Micros {
        self.decision.reset_after
    }

    fn reset_at(&self) -> Timestamp {
        let reset = self.decision.reset_after.get();
        Timestamp::saturating_from_micros(self.at.micros().saturating_add(reset))
    }

    fn retry_after(&self) -> Retry {
        self.decision.retry_after
    }

    /// Appends `"descriptor/minute";q=10;w=60` if the limit was decided.
    fn write_policies(&self, text: &mut Vec<u8>) {
        let Self {
            limit, decision, ..
        } = self;
        if decision.remaining.is_none() {
            return;
        }
        let (name, requests, seconds) = (limit.name(), limit.requests, limit.seconds);
        let policy = format!("\"{RULE}/{name}\";q={requests};w={seconds}");
        text.extend_from_slice(policy.as_bytes());
    }

    /// Appends `"descriptor/minute";r=9;t=60`.
    fn write_rate_limit(&self, text: &mut Vec<u8>) {
        if let Some(remaining) = self.decision.remaining {
            let (name, reset) = (self.limit.name(), self.decision.reset_after.ceil_secs());
            let rest = format!("\"{RULE}/{name}\";r={remaining};t={reset}");
            text.extend_from_slice(rest.as_bytes());
        }
    }

    fn for_each_violated(&self, mut visit: impl FnMut(&str, &str)) {
        if !self.decision.allowed {
            visit(RULE, self.limit.name());
        }
    }
}
