//! The response to Envoy.

use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{Algorithm, CalendarUnit, Decision, Limit, Outcome};
use fluxgate_http::HeaderFamilies;
use fluxgate_http::server::OUTCOME;
use http::HeaderMap;

use super::messages::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse, Unit};
use super::metadata::{DecisionFacts, metadata};
use super::own_limit::{OwnDecision, RULE};

const POLICY: &str = "ratelimit-policy";

/// The decision on a descriptor.
#[derive(Clone, Debug)]
pub(super) enum DescriptorDecision<'d> {
    ByRules(&'d Decision),
    ByOwnLimit(OwnDecision),
}

impl DescriptorDecision<'_> {
    fn allowed(&self) -> bool {
        match self {
            Self::ByRules(decision) => decision.allowed(),
            Self::ByOwnLimit(own) => own.decision.allowed,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::ByRules(decision) => decision.outcome(),
            Self::ByOwnLimit(own) => own.decision.outcome,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::ByRules(decision) => decision.retry(),
            Self::ByOwnLimit(own) => own.decision.retry_after,
        }
    }

    fn remaining(&self) -> Option<u64> {
        match self {
            Self::ByRules(decision) => decision.remaining(),
            Self::ByOwnLimit(own) => own.decision.remaining,
        }
    }

    fn reset_after(&self) -> Micros {
        match self {
            Self::ByRules(decision) => decision.reset_micros(),
            Self::ByOwnLimit(own) => own.decision.reset_after,
        }
    }

    fn write_headers(&self, families: HeaderFamilies, headers: &mut HeaderMap) {
        match self {
            Self::ByRules(decision) => families.write(*decision, headers),
            Self::ByOwnLimit(own) => families.write(own, headers),
        }
    }

    fn facts(&self) -> DecisionFacts<'_> {
        match self {
            Self::ByRules(decision) => DecisionFacts::of(decision),
            Self::ByOwnLimit(own) => DecisionFacts {
                outcome: own.decision.outcome,
                reported: Some((RULE, Some(own.limit.name()))),
                remaining: own.decision.remaining,
                reset_after: own.decision.reset_after,
            },
        }
    }
}

/// Combines the decisions about all descriptors of a call.
pub(super) fn response(
    decisions: &[DescriptorDecision<'_>],
    families: HeaderFamilies,
) -> RateLimitResponse {
    let allowed = decisions.iter().all(DescriptorDecision::allowed);
    let reported = reported(decisions);
    RateLimitResponse {
        overall_code: code(allowed).into(),
        statuses: decisions.iter().map(status).collect(),
        response_headers_to_add: reported
            .map(|reported| response_headers(reported, decisions, families))
            .unwrap_or_default(),
        dynamic_metadata: reported.map(|reported| metadata(reported.facts())),
    }
}

fn code(allowed: bool) -> Code {
    if allowed { Code::Ok } else { Code::OverLimit }
}

fn status(decision: &DescriptorDecision<'_>) -> DescriptorStatus {
    let current_limit = current_limit(decision);
    // Without a limit there is nothing to reset.
    let reset = current_limit
        .as_ref()
        .map(|_| duration(decision.reset_after()));
    DescriptorStatus {
        code: code(decision.allowed()).into(),
        current_limit,
        limit_remaining: saturating(decision.remaining().unwrap_or(0)),
        duration_until_reset: reset,
    }
}

/// Returns the reported band.
fn current_limit(decision: &DescriptorDecision<'_>) -> Option<RateLimit> {
    let decision = match decision {
        DescriptorDecision::ByRules(decision) => decision,
        DescriptorDecision::ByOwnLimit(own) => {
            own.decision.remaining?;
            return Some(RateLimit {
                requests_per_unit: own.limit.requests(),
                unit: own.limit.unit().into(),
                // It has none.
                name: String::new(),
            });
        }
    };
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

/// Returns the headers of a call: those of one descriptor, with the policies of all.
fn response_headers(
    reported: &DescriptorDecision<'_>,
    decisions: &[DescriptorDecision<'_>],
    families: HeaderFamilies,
) -> Vec<HeaderValue> {
    let mut headers = HeaderMap::new();
    reported.write_headers(families, &mut headers);
    if decisions.len() > 1 && families.ietf {
        insert_all_policies(decisions, families, &mut headers);
    }
    if let Outcome::FailedClosed | Outcome::Forbidden = reported.outcome() {
        // Distinguishes it from a used up quota, which has the code OVER_LIMIT too.
        let outcome = reported.outcome().name();
        headers.insert(OUTCOME, http::HeaderValue::from_static(outcome));
    }
    let headers = headers.iter().filter_map(|(name, value)| {
        Some(HeaderValue {
            key: name.as_str().to_owned(),
            value: value.to_str().ok()?.to_owned(),
        })
    });
    headers.collect()
}

/// Returns the denied descriptor with the longest wait, or else the one with the fewest
/// remaining units; the first among equals.
fn reported<'a, 'd>(decisions: &'a [DescriptorDecision<'d>]) -> Option<&'a DescriptorDecision<'d>> {
    let precedes =
        |a: &DescriptorDecision<'_>, b: &DescriptorDecision<'_>| match (a.allowed(), b.allowed()) {
            (false, true) => true,
            (true, false) => false,
            (false, false) => a.retry() > b.retry(),
            (true, true) => match (a.remaining(), b.remaining()) {
                (Some(a), Some(b)) => a < b,
                (a, b) => a.is_some() && b.is_none(),
            },
        };
    decisions
        .iter()
        .reduce(|best, next| if precedes(next, best) { next } else { best })
}

/// Inserts the policies of all descriptors, each once.
fn insert_all_policies(
    decisions: &[DescriptorDecision<'_>],
    families: HeaderFamilies,
    headers: &mut HeaderMap,
) {
    let mut policies: Vec<String> = Vec::new();
    for decision in decisions {
        let mut own = HeaderMap::new();
        decision.write_headers(families, &mut own);
        let own = own.get(POLICY).and_then(|value| value.to_str().ok());
        // Neither ids nor numbers contain a comma.
        for policy in own.into_iter().flat_map(|own| own.split(',')) {
            if policies.iter().all(|known| known != policy) {
                policies.push(policy.to_owned());
            }
        }
    }
    if let Ok(value) = policies.join(",").try_into()
        && !policies.is_empty()
    {
        headers.insert(POLICY, value);
    }
}
