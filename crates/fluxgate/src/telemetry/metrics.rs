//! The metrics, for Prometheus and for OTLP collectors.
//!
//! Each thread has its own counters, which are summed when metrics are rendered. So counting
//! a decision takes no lock and touches no cache line of another core.

mod durations;
mod events;
mod exposition;
mod family;
mod gateway;
mod history;
mod http_durations;
mod otlp;
mod process;
mod render;
mod shard;
mod shared;
mod totals;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{ActiveRule, Band, Decision, OnError, Outcome};
use fluxgate_redis::lease::LeaseCounts;
use fluxgate_redis::reason;

pub(crate) use events::{EventGauges, WebhookGauges};
use fluxgate_http::server::Listener;
pub(crate) use history::HistoryCounts;
pub(super) use http_durations::{OTHER_METHOD, known_method, version_of};
pub(crate) use render::MetricSources;
pub(super) use render::{OwnSources, otlp_request, prometheus_text};
pub(super) use shard::lock;
use shard::{STATUS_CLASSES, Shards};
pub(crate) use shared::AdminDenial;
use shared::{AdminDenials, LlmCounts};
pub(super) use totals::DecisionTotals;
pub(crate) use totals::RuleTotals;
use totals::{read_outcome_totals, read_rule_totals};

/// All metrics of the service.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) shards: Shards,
    /// When the process started, since 1970.
    started: Duration,
    reload: ReloadStatus,
    /// How many requests are waiting.
    pub(super) waiting: AtomicU64,
    pub(super) spans: SpanCounts,
    pub(super) llm: LlmCounts,
    pub(super) admin: AdminDenials,
    pub(super) history: HistoryCounts,
    /// Connections without a valid header of the PROXY protocol.
    pub(super) proxy_failures: AtomicU64,
    /// Lines of the access log that were lost.
    pub(super) access_log_lost: Arc<AtomicU64>,
    /// Exports of metrics that failed.
    pub(super) exports_failed: AtomicU64,
}

/// What is loaded and reloaded by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReloadedPart {
    /// The rules, with the settings if these stand beside them.
    Rules,
    /// The settings of a config whose rules come from elsewhere.
    Settings,
}

/// The results of loading the rules and the settings.
#[derive(Debug, Default)]
struct ReloadStatus {
    /// Whether a part has ever been valid: 0 or 1.
    was_valid: AtomicU64,
    /// The parts that were not valid the last time: a bit for each.
    invalid: AtomicU64,
    /// When a part was last valid, in seconds since 1970.
    last_valid_at: AtomicU64,
    failures: AtomicU64,
}

/// The number of spans by their fate. Few requests are traced, so all threads share the
/// counters.
#[derive(Debug, Default)]
pub(super) struct SpanCounts {
    pub(super) sent: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// The state of the store when metrics are rendered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreGauges {
    /// The circuit breaker: 0 closed, 1 half open, 2 open.
    pub(crate) breaker: u64,
    pub(crate) script_reloads: u64,
    pub(crate) script_reload_failures: u64,
    pub(crate) failovers: u64,
    /// The number of counters in a memory store.
    pub(crate) memory_keys: Option<u64>,
    /// The leases, if the store can have any.
    pub(crate) leases: Option<LeaseCounts>,
}

impl Metrics {
    /// Creates the metrics of a process that started at `started`, since 1970.
    pub(super) fn new(started: Duration) -> Self {
        Self {
            shards: Shards::new(),
            started,
            reload: ReloadStatus::default(),
            waiting: AtomicU64::new(0),
            spans: SpanCounts::default(),
            llm: LlmCounts::default(),
            admin: AdminDenials::default(),
            history: HistoryCounts::default(),
            proxy_failures: AtomicU64::new(0),
            access_log_lost: Arc::default(),
            exports_failed: AtomicU64::new(0),
        }
    }

    /// Counts a decision. `rule_set` is empty if it does not exist: clients could create
    /// any number of label values otherwise. `used` is the used share of the reported band, in
    /// thousandths.
    pub(super) fn count_decision(
        &self,
        rule_set: &str,
        rule: Option<&ActiveRule>,
        outcome: Outcome,
        is_allowed: bool,
        took: Duration,
        used: Option<u64>,
    ) {
        self.shards
            .count_decision(rule_set, rule, |shard, decisions| {
                shard.durations.add(took);
                decisions.by_outcome[outcome as usize].add(1);
                if !is_allowed {
                    decisions.denied.add(1);
                }
                let used = used.map_or(0, |used| used + 1);
                if used > decisions.most_used.load(Ordering::Relaxed) {
                    decisions.most_used.store(used, Ordering::Relaxed);
                }
            });
    }

    /// Counts a decision for a rule that took part in it, by the outcome of this rule. Without a
    /// rule, it is the outcome of the decision.
    pub(super) fn count_rule(&self, rule_set: &str, rule: Option<&ActiveRule>, outcome: Outcome) {
        let shards = &self.shards;
        shards.count_decision(rule_set, rule, |_, counters| {
            counters.own_outcomes[outcome as usize].add(1);
        });
    }

    /// Reads the outcomes of all rules.
    pub(super) fn read_rule_totals(&self) -> RuleTotals {
        read_rule_totals(&self.shards)
    }

    /// Reads the outcomes of all decisions.
    pub(super) fn read_outcome_totals(&self) -> [u64; Outcome::ALL.len()] {
        read_outcome_totals(&self.shards)
    }

    /// Reads all counters of decisions.
    pub(super) fn read_totals(&self) -> DecisionTotals {
        DecisionTotals::read(&self.shards)
    }

    /// Returns how many denials were left out of the log.
    pub(super) fn unlogged(&self) -> u64 {
        let shards = self.shards.all();
        shards.iter().map(|shard| shard.unlogged.get()).sum()
    }

    /// Counts a failure of the store, and a denial if that is what `on_error` decided.
    pub(super) fn count_store_failure(&self, reason: Reason, on_error: Option<OnError>) {
        let known = reason::ALL.iter().position(|known| *known == reason);
        let index = known.unwrap_or_default();
        self.shards.count(|shard| {
            shard.store_errors[index].add(1);
            if on_error == Some(OnError::Deny) {
                shard.failed_closed[index].add(1);
            }
        });
    }

    /// Counts the response to an HTTP request.
    pub(super) fn count_response(&self, listener: Listener, status: u16) {
        let class = usize::from(status / 100).clamp(1, STATUS_CLASSES) - 1;
        self.shards
            .count(|shard| shard.responses[listener as usize][class].add(1));
    }

    /// Records whether a part was valid when it was loaded at `now`, since 1970.
    pub(super) fn record_reload(&self, part: ReloadedPart, is_valid: bool, now: Duration) {
        let (reload, bit) = (&self.reload, 1 << part as u32);
        if is_valid {
            reload.last_valid_at.store(now.as_secs(), Ordering::Relaxed);
            reload.was_valid.store(1, Ordering::Relaxed);
            reload.invalid.fetch_and(!bit, Ordering::Relaxed);
        } else {
            reload.failures.fetch_add(1, Ordering::Relaxed);
            reload.invalid.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Returns the rule and the band that a decision is counted under. For a shadow denial, they
/// are the first that would have denied the request.
pub(super) fn reported_rule(decision: &Decision) -> (Option<&ActiveRule>, Option<&Band>) {
    if decision.outcome() == Outcome::ShadowDenied {
        let first = decision.violated().next();
        return (first.map(|it| it.rule), first.and_then(|it| it.band));
    }
    (decision.rule(), decision.band())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::open_holds::HoldCounts;
    use fluxgate_core::RuleSets;

    fn text_of(metrics: &Metrics) -> String {
        let own = OwnSources {
            holds: &HoldCounts::default(),
            overflows: 0,
        };
        prometheus_text(metrics, &MetricSources::default(), &own)
    }

    fn rules(capacity: u32) -> RuleSets {
        let yaml = format!(
            "rule_sets: {{ s: {{ rules: [ {{ id: r, scope: global, reset_on_change: true, \
             bands: [ {{ capacity: {capacity}, window: 1s }} ] }} ] }} }}"
        );
        RuleSets::from_yaml(&yaml).unwrap()
    }

    #[test]
    fn the_counts_of_a_rule_are_summed_over_its_numbers_and_all_threads() {
        let metrics = Metrics::new(Duration::ZERO);
        let (before, after) = (rules(1), rules(2));
        let rule = |rules: &RuleSets| rules.get("s").unwrap().rules()[0].number();
        assert_ne!(rule(&before), rule(&after));
        let count = |rules: &RuleSets, times: u32| {
            let rule = &rules.get("s").unwrap().rules()[0];
            for _ in 0..times {
                let denied = Outcome::Denied;
                metrics.count_decision("s", Some(rule), denied, false, Duration::ZERO, None);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| count(&before, 10));
            }
        });
        count(&after, 5);
        count(&before, 2);
        metrics.count_decision("", None, Outcome::NoRule, true, Duration::ZERO, None);
        for rules in [&before, &after] {
            let rule = &rules.get("s").unwrap().rules()[0];
            metrics.count_rule("s", Some(rule), Outcome::ShadowDenied);
        }
        metrics.count_rule("", None, Outcome::NoRule);
        let text = text_of(&metrics);
        let decisions = text
            .lines()
            .filter(|line| line.starts_with("fluxgate_decisions_total{"));
        assert_eq!(
            decisions.collect::<Vec<_>>(),
            [
                "fluxgate_decisions_total{rule_set=\"\",rule=\"\",outcome=\"no_rule\"} 1",
                "fluxgate_decisions_total{rule_set=\"s\",rule=\"r\",outcome=\"denied\"} 37",
            ]
        );
        let by_rule = text
            .lines()
            .filter(|line| line.starts_with("fluxgate_rule_decisions_total{"));
        assert_eq!(
            by_rule.collect::<Vec<_>>(),
            [
                "fluxgate_rule_decisions_total{rule_set=\"\",rule=\"\",outcome=\"no_rule\"} 1",
                "fluxgate_rule_decisions_total{rule_set=\"s\",rule=\"r\",outcome=\"shadow_denied\"} 2",
            ]
        );
    }

    #[test]
    fn the_discriminants_of_listeners_and_outcomes_are_their_indices() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
        for (index, listener) in Listener::ALL.into_iter().enumerate() {
            assert_eq!(listener as usize, index);
        }
    }

    #[test]
    fn a_failed_reload_keeps_the_time_of_the_last_successful_one() {
        let metrics = Metrics::new(Duration::ZERO);
        metrics.record_reload(ReloadedPart::Rules, true, Duration::from_secs(7));
        metrics.record_reload(ReloadedPart::Settings, false, Duration::from_secs(9));
        let text = text_of(&metrics);
        for line in [
            "fluxgate_config_last_reload_successful 0",
            "fluxgate_config_last_reload_success_timestamp_seconds 7",
            "fluxgate_config_reload_failures_total 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{text}");
        }
    }
}
