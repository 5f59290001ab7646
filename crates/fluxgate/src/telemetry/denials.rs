//! Logs a sample of the denials. Each line says how many were left out before it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::json::quoted;
use fluxgate_core::store::Retry;
use fluxgate_core::{ActiveRule, Outcome, WaitRefusal};
use fluxgate_http::server::Origin;
use tracing::field;

use super::sampler::Sampler;
use super::trace_context::RequestIds;

/// How many lines may be written at once.
const BURST: u64 = 10;
/// How many lines may be written per second on average.
const PER_SECOND: u64 = 10;

/// The maximum length of a rule's attributes in a line.
const MAX_ATTRIBUTES_BYTES: usize = 8 * 1024;

/// Logs a sample of the denials.
#[derive(Debug)]
pub(super) struct DenialLog {
    sampler: Sampler,
    /// How many denials had been left out when the last line was written.
    reported: AtomicU64,
}

/// The fields of a line.
#[derive(Debug)]
pub(super) struct Denial<'a> {
    pub(super) rule_set: Option<&'a str>,
    pub(super) rule: Option<&'a ActiveRule>,
    pub(super) band: Option<&'a str>,
    pub(super) outcome: Outcome,
    pub(super) retry_after: Retry,
    /// Why the request was not allowed to wait, if its rules let requests wait.
    pub(super) wait_refused: Option<WaitRefusal>,
    /// `None` unless the config lets logs name identities.
    pub(super) identity: Option<String>,
}

impl Denial<'_> {
    /// Returns whether the request was denied, or only would have been.
    fn message(&self) -> &'static str {
        match self.outcome {
            Outcome::ShadowDenied => "would be denied",
            _ => "denied",
        }
    }
}

impl DenialLog {
    pub(super) fn new() -> Self {
        Self {
            sampler: Sampler::new(BURST, PER_SECOND),
            reported: AtomicU64::new(0),
        }
    }

    /// Returns whether to log a denial.
    pub(super) fn should_log(&self, uptime: Duration) -> bool {
        tracing::enabled!(tracing::Level::INFO) && self.sampler.allows(uptime)
    }

    /// Writes a line. `unlogged` is the total number of denials left out so far.
    pub(super) fn log(&self, denial: &Denial<'_>, origin: &Origin<'_>, unlogged: u64) {
        // Concurrent lines may split the number in any way.
        let reported = self.reported.fetch_max(unlogged, Ordering::Relaxed);
        let RequestIds { request_id, trace } = RequestIds::from(origin);
        let retry_after = denial.retry_after.after();
        let attributes = denial.rule.and_then(attributes);
        tracing::info!(
            rule_set = denial.rule_set,
            rule = denial.rule.map(ActiveRule::id),
            band = denial.band,
            outcome = denial.outcome.name(),
            retry_after_ms = retry_after.map(|wait| wait.ceil_millis()),
            wait_refused = denial.wait_refused.map(WaitRefusal::name),
            listener = origin.listener.name(),
            request_id,
            trace_id = trace.map(|trace| field::display(trace.trace_id)),
            span_id = trace.map(|trace| field::display(trace.span_id)),
            identity = denial.identity,
            attributes = attributes.map(field::display),
            suppressed = unlogged.saturating_sub(reported),
            "{}",
            denial.message()
        );
    }
}

/// Returns the attributes of a rule as JSON, unless they are too long for a line.
fn attributes(rule: &ActiveRule) -> Option<String> {
    let pairs: Vec<_> = rule
        .attributes()
        .map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)))
        .collect();
    let json = format!("{{{}}}", pairs.join(","));
    (!pairs.is_empty() && json.len() <= MAX_ATTRIBUTES_BYTES).then_some(json)
}
