//! What is counted for Prometheus.
//!
//! Each thread counts for itself, and the counts are added up when they are
//! asked for: a decision takes no lock and no cache line of another core.

mod durations;
mod exposition;
mod process;
mod render;
mod shard;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::{OnError, Outcome, Reason, Rule};
use fluxgate_redis::reason;

use crate::http::Listener;
use shard::{STATUS_CLASSES, Shards};

/// Everything that is counted.
#[derive(Debug)]
pub(super) struct Metrics {
    shards: Shards,
    /// When the process began, since 1970.
    began: Duration,
    reload: Reload,
    /// How many requests wait for their turn.
    waiting: AtomicU64,
    pub(super) spans: SpanCounts,
}

/// How reading the rules went.
#[derive(Debug, Default)]
struct Reload {
    /// Whether the last time was good: 0 or 1.
    good: AtomicU64,
    /// When it last was good, in seconds since 1970.
    last_good: AtomicU64,
    failures: AtomicU64,
}

/// What became of spans. Few requests are traced, so all threads share them.
#[derive(Debug, Default)]
pub(super) struct SpanCounts {
    pub(super) sent: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// What the store reports when metrics are rendered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreGauges {
    /// The circuit breaker: 0 closed, 1 half open, 2 open.
    pub(crate) breaker: u64,
    pub(crate) script_reloads: u64,
    pub(crate) failovers: u64,
    /// The counters that a memory store holds.
    pub(crate) memory_keys: Option<u64>,
}

impl Metrics {
    /// Nothing yet. The process began at `began`, since 1970.
    pub(super) fn new(began: Duration) -> Self {
        Self {
            shards: Shards::new(),
            began,
            reload: Reload::default(),
            waiting: AtomicU64::new(0),
            spans: SpanCounts::default(),
        }
    }

    /// A request was decided. A rule set that does not exist has no name here:
    /// clients choose what they ask for, and there is no end to that.
    pub(super) fn decided(
        &self,
        rule_set: &str,
        rule: Option<&Rule>,
        outcome: Outcome,
        took: Duration,
    ) {
        self.shards
            .count_decision(rule_set, rule, |shard, decisions| {
                shard.durations.add(took);
                decisions.by_outcome[outcome as usize].add(1);
            });
    }

    /// A denial was not worth a line.
    pub(super) fn denial_unlogged(&self) {
        self.shards.count(|shard| shard.unlogged.add(1));
    }

    /// How many denials have not been worth a line.
    pub(super) fn unlogged(&self) -> u64 {
        let shards = self.shards.all();
        shards.iter().map(|shard| shard.unlogged.get()).sum()
    }

    /// The store failed; `on_error` decided, if there was something to decide.
    pub(super) fn store_failed(&self, reason: Reason, on_error: Option<OnError>) {
        let known = reason::ALL.iter().position(|known| *known == reason);
        let index = known.unwrap_or_default();
        self.shards.count(|shard| {
            shard.store_errors[index].add(1);
            if on_error == Some(OnError::Deny) {
                shard.failed_closed[index].add(1);
            }
        });
    }

    /// An HTTP request was answered.
    pub(super) fn answered(&self, listener: Listener, status: u16) {
        let class = usize::from(status / 100).clamp(1, STATUS_CLASSES) - 1;
        self.shards
            .count(|shard| shard.answered[listener as usize][class].add(1));
    }

    /// The rules were read, since 1970.
    pub(super) fn reloaded(&self, good: bool, now: Duration) {
        if good {
            self.reload
                .last_good
                .store(now.as_secs(), Ordering::Relaxed);
        } else {
            self.reload.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.reload.good.store(u64::from(good), Ordering::Relaxed);
    }

    /// A request begins to wait.
    pub(super) fn wait_began(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// A request waits no more.
    pub(super) fn wait_ended(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fluxgate_core::RuleSets;

    fn rules(capacity: u32) -> RuleSets {
        let yaml = format!(
            "rule_sets: {{ s: {{ rules: [ {{ id: r, scope: global, reset_on_change: true, \
             bands: [ {{ capacity: {capacity}, window: 1s }} ] }} ] }} }}"
        );
        RuleSets::from_yaml(&yaml).unwrap()
    }

    #[test]
    fn a_rule_is_one_whatever_its_number_and_whichever_thread_decides() {
        let metrics = Metrics::new(Duration::ZERO);
        let (before, after) = (rules(1), rules(2));
        let rule = |rules: &RuleSets| rules.get("s").unwrap().rules()[0].number();
        assert_ne!(rule(&before), rule(&after));
        let count = |rules: &RuleSets, times: u32| {
            let rule = &rules.get("s").unwrap().rules()[0];
            for _ in 0..times {
                metrics.decided("s", Some(rule), Outcome::Denied, Duration::ZERO);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| count(&before, 10));
            }
        });
        count(&after, 5);
        count(&before, 2);
        metrics.decided("", None, Outcome::NoRule, Duration::ZERO);
        let text = metrics.render(&StoreGauges::default());
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
    }

    #[test]
    fn listeners_and_outcomes_stand_where_their_numbers_say() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
        for (index, listener) in Listener::ALL.into_iter().enumerate() {
            assert_eq!(listener as usize, index);
        }
    }

    #[test]
    fn a_reload_that_failed_keeps_the_time_of_the_last_good_one() {
        let metrics = Metrics::new(Duration::ZERO);
        metrics.reloaded(true, Duration::from_secs(7));
        metrics.reloaded(false, Duration::from_secs(9));
        let text = metrics.render(&StoreGauges::default());
        for line in [
            "fluxgate_config_last_reload_successful 0",
            "fluxgate_config_last_reload_success_timestamp_seconds 7",
            "fluxgate_config_reload_failures_total 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{text}");
        }
    }
}
