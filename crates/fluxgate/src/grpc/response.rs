//! The response to Envoy.

use fluxgate_core::store::Micros;
use fluxgate_core::{Algorithm, CalendarUnit, Decision, Limit};
use fluxgate_http::HeaderFamilies;

use super::headers;
use super::messages::{Code, DescriptorStatus, RateLimit, RateLimitResponse, Unit};

/// Combines the decisions about all descriptors of a call.
pub(super) fn response(decisions: &[Decision], families: HeaderFamilies) -> RateLimitResponse {
    let allowed = decisions.iter().all(Decision::allowed);
    RateLimitResponse {
        overall_code: code(allowed).into(),
        statuses: decisions.iter().map(status).collect(),
        response_headers_to_add: headers::response_headers(decisions, families),
    }
}

fn code(allowed: bool) -> Code {
    if allowed { Code::Ok } else { Code::OverLimit }
}

fn status(decision: &Decision) -> DescriptorStatus {
    let current_limit = current_limit(decision);
    // Without a limit there is nothing to reset.
    let reset = current_limit
        .as_ref()
        .map(|_| duration(decision.reset_micros()));
    DescriptorStatus {
        code: code(decision.allowed()).into(),
        current_limit,
        limit_remaining: saturating(decision.remaining().unwrap_or(0)),
        duration_until_reset: reset,
    }
}

/// Returns the reported band.
fn current_limit(decision: &Decision) -> Option<RateLimit> {
    let (rule, band) = (decision.rule()?, decision.band()?);
    let limit = band.limit();
    let mut name = String::with_capacity(rule.id().len() + 1 + band.id().len());
    name.push_str(rule.id());
    name.push('/');
    name.push_str(band.id());
    Some(RateLimit {
        requests_per_unit: saturating(limit.capacity()),
        unit: unit_of(limit).into(),
        name,
    })
}

/// Capacities are far below the maximum.
fn saturating(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn duration(span: Micros) -> prost_types::Duration {
    let span = span.as_duration();
    prost_types::Duration {
        // Ten years at most.
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or(0),
    }
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Envoy's month and year.
const MONTH: u64 = 30 * DAY;
const YEAR: u64 = 365 * DAY;

/// Returns the unit that equals the window, if any.
fn unit_of(limit: &Limit) -> Unit {
    if let Some(calendar) = limit.windows() {
        return match calendar.unit() {
            CalendarUnit::Hour => Unit::Hour,
            CalendarUnit::Day => Unit::Day,
            CalendarUnit::Month => Unit::Month,
            CalendarUnit::Year => Unit::Year,
            // Envoy has no weeks.
            _ => Unit::Unknown,
        };
    }
    if limit.algorithm() == Algorithm::Concurrency {
        return Unit::Unknown;
    }
    match limit.window().get() {
        SECOND => Unit::Second,
        MINUTE => Unit::Minute,
        HOUR => Unit::Hour,
        DAY => Unit::Day,
        MONTH => Unit::Month,
        YEAR => Unit::Year,
        _ => Unit::Unknown,
    }
}
