//! Everything that is counted, as Prometheus reads it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::Outcome;
use fluxgate_redis::reason;

use super::durations::{AllDurations, BOUNDS, Tally};
use super::exposition::{Exposition, Kind};
use super::process;
use super::shard::{Decisions, STATUS_CLASSES, Shard};
use super::{Metrics, StoreGauges};
use crate::http::Listener;
use crate::telemetry::{clock, log};

const STATUS_CLASS_NAMES: [&str; STATUS_CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Metrics {
    /// All of it, and how the store is.
    pub(in crate::telemetry) fn render(&self, store: &StoreGauges) -> String {
        let shards = self.shards.all();
        let mut out = Exposition::default();
        decisions(&mut out, &shards);
        durations(&mut out, &shards);
        by_reason(
            &mut out,
            (
                "fluxgate_failclosed_total",
                "Requests denied because the store failed.",
            ),
            &shards,
            |shard| &shard.failed_closed,
        );
        by_reason(
            &mut out,
            ("fluxgate_store_errors_total", "Failures of the store."),
            &shards,
            |shard| &shard.store_errors,
        );
        let help = "Requests that wait for their turn.";
        out.one("fluxgate_waiting", Kind::Gauge, help, get(&self.waiting));
        render_store(&mut out, store);
        self.render_reload(&mut out);
        answered(&mut out, &shards);
        self.render_process(&mut out);
        out.into_text()
    }

    fn render_reload(&self, out: &mut Exposition) {
        let help = "Whether the rules were good when they were last read.";
        let name = "fluxgate_config_last_reload_successful";
        out.one(name, Kind::Gauge, help, get(&self.reload.good));
        let help = "When rules were last read and found good, in seconds since 1970.";
        let name = "fluxgate_config_last_reload_success_timestamp_seconds";
        out.one(name, Kind::Gauge, help, get(&self.reload.last_good));
        let help = "How often rules were read and refused.";
        let name = "fluxgate_config_reload_failures_total";
        out.one(name, Kind::Counter, help, get(&self.reload.failures));
    }

    fn render_process(&self, out: &mut Exposition) {
        let help = "Log lines that were dropped because nobody took them in time.";
        let name = "fluxgate_log_lines_dropped_total";
        out.one(name, Kind::Counter, help, log::dropped());
        let help = "Log lines that were suppressed because there were too many of their kind.";
        let name = "fluxgate_log_lines_suppressed_total";
        out.one(name, Kind::Counter, help, log::suppressed());
        let help = "Spans that were sent.";
        let name = "fluxgate_spans_sent_total";
        out.one(name, Kind::Counter, help, get(&self.spans.sent));
        let help = "Spans that were dropped because nobody took them in time.";
        let name = "fluxgate_spans_dropped_total";
        out.one(name, Kind::Counter, help, get(&self.spans.dropped));
        let help = "What is running.";
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("os", std::env::consts::OS),
            ("arch", std::env::consts::ARCH),
        ];
        out.family("fluxgate_build_info", Kind::Gauge, help)
            .sample(&labels, 1);
        let help = "When the process began, in seconds since 1970.";
        out.family("process_start_time_seconds", Kind::Gauge, help)
            .seconds(&[], clock::nanos(self.began));
        process::render(out);
    }
}

fn decisions(out: &mut Exposition, shards: &[Arc<Shard>]) {
    let all: Vec<_> = shards.iter().flat_map(|shard| shard.decisions()).collect();
    // A rule that resets on change has another number after each, and every
    // thread has its own counts: all of these are one rule.
    let mut by_rule: BTreeMap<_, [u64; Outcome::ALL.len()]> = BTreeMap::new();
    for decisions in &all {
        let Decisions { rule_set, rule, .. } = &**decisions;
        let sums = by_rule.entry((rule_set, rule)).or_default();
        for (sum, count) in sums.iter_mut().zip(&decisions.by_outcome) {
            *sum += count.get();
        }
    }
    let help = "Decisions, by the rule that is reported.";
    let mut family = out.family("fluxgate_decisions_total", Kind::Counter, help);
    let mut fallbacks = 0;
    for ((rule_set, rule), sums) in by_rule {
        for (outcome, sum) in Outcome::ALL.iter().zip(sums) {
            if *outcome == Outcome::Fallback {
                fallbacks += sum;
            }
            // Most rules never meet most outcomes.
            if sum > 0 {
                let outcome = outcome.name();
                let labels = [
                    ("rule_set", &**rule_set),
                    ("rule", rule),
                    ("outcome", outcome),
                ];
                family.sample(&labels, sum);
            }
        }
    }
    let help = "Decisions of the embedded engine in the store's stead.";
    let name = "fluxgate_fallback_decisions_total";
    out.one(name, Kind::Counter, help, fallbacks);
}

fn durations(out: &mut Exposition, shards: &[Arc<Shard>]) {
    let mut all = AllDurations::default();
    for shard in shards {
        all.add(&shard.durations);
    }
    let help = "How long decisions take.";
    let name = "fluxgate_decision_duration_seconds";
    let mut family = out.family(name, Kind::Histogram, help);
    family.histogram(&BOUNDS, &all.buckets, all.sum);
}

fn by_reason(
    out: &mut Exposition,
    (name, help): (&'static str, &str),
    shards: &[Arc<Shard>],
    counts: impl Fn(&Shard) -> &[Tally; reason::ALL.len()],
) {
    let mut family = out.family(name, Kind::Counter, help);
    for (index, reason) in reason::ALL.iter().enumerate() {
        let sum = shards.iter().map(|shard| counts(shard)[index].get()).sum();
        family.sample(&[("reason", reason.name())], sum);
    }
}

fn render_store(out: &mut Exposition, store: &StoreGauges) {
    let help = "Whether the store is asked: 0 closed (yes), 1 half open (to see), 2 open (no).";
    out.one("fluxgate_breaker_state", Kind::Gauge, help, store.breaker);
    let help = "How often Redis did not have the script and has loaded it.";
    let name = "fluxgate_store_script_reloads_total";
    out.one(name, Kind::Counter, help, store.script_reloads);
    let help = "How often the sentinels have named another primary.";
    let name = "fluxgate_store_failovers_total";
    out.one(name, Kind::Counter, help, store.failovers);
    if let Some(keys) = store.memory_keys {
        let help = "Counters that the memory store holds.";
        out.one("fluxgate_memory_store_keys", Kind::Gauge, help, keys);
    }
}

fn answered(out: &mut Exposition, shards: &[Arc<Shard>]) {
    let help = "HTTP requests, by the class of their answer.";
    let mut family = out.family("fluxgate_http_requests_total", Kind::Counter, help);
    for listener in Listener::ALL {
        let counts = STATUS_CLASS_NAMES.iter().enumerate().map(|(class, name)| {
            let counts = shards
                .iter()
                .map(|shard| &shard.answered[listener as usize]);
            (*name, counts.map(|counts| counts[class].get()).sum())
        });
        let counts: Vec<(&str, u64)> = counts.collect();
        // A listener that nobody asked is not open, or does not speak HTTP.
        if counts.iter().all(|(_, count)| *count == 0) {
            continue;
        }
        for (class, count) in counts {
            let labels = [("listener", listener.name()), ("status_class", class)];
            family.sample(&labels, count);
        }
    }
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
