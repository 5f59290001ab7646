//! The counts of the last second, for the live view.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fluxgate_core::Outcome;
use serde::Serialize;

use super::clock;
use super::metrics::{DecisionTotals, Metrics};
use super::open_holds::HoldCounts;

/// The counters at the last reading.
#[derive(Debug)]
pub(crate) struct LiveReader(DecisionTotals);

/// The counts since the last reading.
#[derive(Debug, Serialize)]
pub(crate) struct LiveSecond {
    pub(crate) at_ms: u64,
    uptime_s: u64,
    decisions: BTreeMap<&'static str, u64>,
    denied: u64,
    rules: Vec<LiveRule>,
    latency_us: LiveLatency,
    pub(crate) waiting: u64,
    /// Slots that are held through this process.
    pub(crate) slots: u64,
}

/// The decisions of one rule.
#[derive(Debug, Serialize)]
struct LiveRule {
    rule_set: Box<str>,
    rule: Box<str>,
    outcomes: BTreeMap<&'static str, u64>,
    denied: u64,
    /// The highest used share of a band that was reported.
    used: Option<f64>,
}

/// How long decisions took.
#[derive(Debug, Serialize)]
struct LiveLatency {
    p50: Option<f64>,
    p99: Option<f64>,
}

impl LiveSecond {
    /// Returns how many requests were decided, and how many of them were denied.
    pub(crate) fn load(&self) -> (u64, u64) {
        (self.decisions.values().sum(), self.denied)
    }
}

impl LiveReader {
    /// Returns a reader that starts now.
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self(metrics.read_totals())
    }

    /// Returns the counts since the last reading.
    pub(super) fn read(
        &mut self,
        metrics: &Metrics,
        holds: &HoldCounts,
        uptime: Duration,
    ) -> LiveSecond {
        let totals = metrics.read_totals();
        let since = totals.clone().since(&self.0);
        self.0 = totals;
        let micros = |thousandths| since.quantile(thousandths).map(in_thousandths);
        let rules = since
            .rules
            .iter()
            .filter(|((_, rule), _)| !rule.is_empty())
            .map(|(name, counts)| LiveRule {
                rule_set: name.0.clone(),
                rule: name.1.clone(),
                outcomes: named(&counts.by_outcome),
                denied: counts.denied,
                used: since.used.get(name).copied().map(in_thousandths),
            });
        let total = since.total();
        LiveSecond {
            at_ms: clock::micros(clock::unix_time()) / 1000,
            uptime_s: uptime.as_secs(),
            decisions: named(&total.by_outcome),
            denied: total.denied,
            rules: rules.collect(),
            latency_us: LiveLatency {
                p50: micros(500),
                p99: micros(990),
            },
            waiting: metrics.waiting.load(Ordering::Relaxed),
            slots: holds.slots.values().sum(),
        }
    }
}

/// Returns a number of thousandths as a decimal.
#[expect(
    clippy::float_arithmetic,
    reason = "only to be looked at; no decision depends on it"
)]
fn in_thousandths(number: u64) -> f64 {
    number as f64 / 1000.0
}

/// Returns the counts that are not zero, by the name of the outcome.
fn named(counts: &[u64; Outcome::ALL.len()]) -> BTreeMap<&'static str, u64> {
    let counts = Outcome::ALL
        .iter()
        .zip(counts)
        .filter(|(_, count)| **count > 0);
    counts
        .map(|(outcome, count)| (outcome.name(), *count))
        .collect()
}
