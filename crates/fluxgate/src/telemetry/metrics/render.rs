//! Renders all metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::{Outcome, WaitRefusal};
use fluxgate_gateway::RouteStatus;
use fluxgate_http::server::Listener;
use fluxgate_redis::lease::LeaseCounts;
use fluxgate_redis::reason;

use super::durations::{BOUNDS, DurationTotals, Tally};
use super::events::{EventGauges, render_events};
use super::exposition::{Exposition, Family};
use super::family::Kind;
use super::gateway::render_gateway;
use super::http_durations;
use super::process;
use super::shard::{STATUS_CLASSES, Shard, lock};
use super::{Metrics, ReloadStatus, RuleTotals, StoreGauges};
use crate::telemetry::open_holds::HoldCounts;
use crate::telemetry::{clock, log};

const STATUS_CLASS_NAMES: [&str; STATUS_CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What metrics show besides their own counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricSources {
    pub(crate) store: StoreGauges,
    pub(crate) events: EventGauges,
    /// The routes of the gateway, if there is one.
    pub(crate) routes: Vec<RouteStatus>,
}

/// What the telemetry itself knows besides its counters.
#[derive(Debug)]
pub(in crate::telemetry) struct OwnSources<'a> {
    pub(in crate::telemetry) holds: &'a HoldCounts,
    /// Shares of limits that did not fit into their queue.
    pub(in crate::telemetry) overflows: u64,
}

/// Returns all metrics in Prometheus' text format.
pub(in crate::telemetry) fn prometheus_text(
    metrics: &Metrics,
    sources: &MetricSources,
    own: &OwnSources<'_>,
) -> String {
    let mut out = Exposition::prometheus();
    render_all(&mut out, metrics, sources, own);
    out.into_text()
}

/// Returns all metrics as a request to an OTLP collector, with those that OpenTelemetry names.
pub(in crate::telemetry) fn otlp_request(
    metrics: &Metrics,
    sources: &MetricSources,
    own: &OwnSources<'_>,
) -> String {
    let mut out = Exposition::otlp(metrics.started);
    render_all(&mut out, metrics, sources, own);
    if let Exposition::Otlp(out) = &mut out {
        let shards = metrics.shards.all();
        http_durations::render(out, shards.iter().map(|shard| lock(&shard.http)));
    }
    out.into_text()
}

fn render_all(
    out: &mut Exposition,
    metrics: &Metrics,
    sources: &MetricSources,
    own: &OwnSources<'_>,
) {
    render_metrics(out, metrics, &sources.store, own.holds);
    render_events(out, &sources.events, own.overflows);
    render_gateway(out, &sources.routes);
}

/// Renders the metrics of decisions, the store and the process.
fn render_metrics(
    out: &mut Exposition,
    metrics: &Metrics,
    store: &StoreGauges,
    holds: &HoldCounts,
) {
    let shards = metrics.shards.all();
    render_decisions(out, &shards);
    render_rule_decisions(out, &metrics.read_rule_totals());
    render_durations(out, &shards);
    let reasons = reason::ALL.map(|reason| reason.name());
    let help = "Requests denied because the store failed.";
    let family = out.family("fluxgate_failclosed_total", Kind::Counter, help);
    add_sums(family, &shards, "reason", &reasons, |shard| {
        &shard.failed_closed
    });
    let help = "Failed calls to the store.";
    let family = out.family("fluxgate_store_errors_total", Kind::Counter, help);
    add_sums(family, &shards, "reason", &reasons, |shard| {
        &shard.store_errors
    });
    let help = "Requests that are waiting for units.";
    out.one("fluxgate_waiting", Kind::Gauge, help, get(&metrics.waiting));
    let help = "Requests that their rules let wait, and that were denied instead.";
    let family = out.family("fluxgate_waits_refused_total", Kind::Counter, help);
    let refusals = WaitRefusal::ALL.map(WaitRefusal::name);
    add_sums(family, &shards, "reason", &refusals, |shard| {
        &shard.refused_waits
    });
    render_holds(out, holds);
    metrics.llm.render(out);
    render_store(out, store);
    render_reload(&metrics.reload, out);
    metrics.admin.render(out);
    metrics.history.render(out);
    render_responses(out, &shards);
    let help = "TLS handshakes that failed, by listener.";
    let family = out.family("fluxgate_tls_handshake_failures_total", Kind::Counter, help);
    let listeners = Listener::ALL.map(Listener::name);
    add_sums(family, &shards, "listener", &listeners, |shard| {
        &shard.tls_failures
    });
    let help = "Connections that were closed because they had no valid PROXY header.";
    let name = "fluxgate_proxy_protocol_failures_total";
    out.one(name, Kind::Counter, help, get(&metrics.proxy_failures));
    render_process(metrics, out);
}

fn render_reload(reload: &ReloadStatus, out: &mut Exposition) {
    let help = "Whether the last reload of the rules and of the settings succeeded.";
    let name = "fluxgate_config_last_reload_successful";
    let is_valid = get(&reload.was_valid) == 1 && get(&reload.invalid) == 0;
    out.one(name, Kind::Gauge, help, u64::from(is_valid));
    let help = "Time of the last successful reload of rules or settings, in seconds since 1970.";
    let name = "fluxgate_config_last_reload_success_timestamp_seconds";
    out.one(name, Kind::Gauge, help, get(&reload.last_valid_at));
    let help = "Failed reloads of rules and settings.";
    let name = "fluxgate_config_reload_failures_total";
    out.one(name, Kind::Counter, help, get(&reload.failures));
}

fn render_process(metrics: &Metrics, out: &mut Exposition) {
    let help = "Log lines dropped because standard error did not accept them in time.";
    let name = "fluxgate_log_lines_dropped_total";
    out.one(name, Kind::Counter, help, log::dropped());
    let help = "Log lines suppressed because their cause logged too many.";
    let name = "fluxgate_log_lines_suppressed_total";
    out.one(name, Kind::Counter, help, log::suppressed());
    let help = "Lines of the access log that were lost because they were not written in time.";
    let name = "fluxgate_access_log_lost_total";
    out.one(name, Kind::Counter, help, get(&metrics.access_log_lost));
    let help = "Spans sent to the collector.";
    let name = "fluxgate_spans_sent_total";
    out.one(name, Kind::Counter, help, get(&metrics.spans.sent));
    let help = "Spans dropped because the collector did not accept them in time.";
    let name = "fluxgate_spans_dropped_total";
    out.one(name, Kind::Counter, help, get(&metrics.spans.dropped));
    let help = "Exports of metrics to the collector that failed.";
    let name = "fluxgate_metric_exports_failed_total";
    out.one(name, Kind::Counter, help, get(&metrics.exports_failed));
    let help = "Version and platform of the running program.";
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("os", std::env::consts::OS),
        ("arch", std::env::consts::ARCH),
    ];
    out.family("fluxgate_build_info", Kind::Gauge, help)
        .sample(&labels, 1);
    let help = "Start time of the process in seconds since 1970.";
    out.family("process_start_time_seconds", Kind::Gauge, help)
        .seconds(&[], clock::nanos(metrics.started));
    process::render(out);
}

fn render_decisions(out: &mut Exposition, shards: &[Arc<Shard>]) {
    let all: Vec<_> = shards.iter().flat_map(|shard| shard.decisions()).collect();
    // One rule has several counts: one per thread, and a new number after each change if
    // it resets on change.
    let mut by_rule: BTreeMap<_, [u64; Outcome::ALL.len()]> = BTreeMap::new();
    for decisions in &all {
        let names = &decisions.names;
        let sums = by_rule.entry((&names.rule_set, &names.rule)).or_default();
        for (sum, count) in sums.iter_mut().zip(&decisions.by_outcome) {
            *sum += count.get();
        }
    }
    let help = "Decisions by reported rule and outcome.";
    let mut family = out.family("fluxgate_decisions_total", Kind::Counter, help);
    let mut fallbacks = 0;
    for ((rule_set, rule), sums) in by_rule {
        for (outcome, sum) in Outcome::ALL.iter().zip(sums) {
            if *outcome == Outcome::Fallback {
                fallbacks += sum;
            }
            // Most rules never have most outcomes.
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
    let help = "Decisions made by the local fallback because the store failed.";
    let name = "fluxgate_fallback_decisions_total";
    out.one(name, Kind::Counter, help, fallbacks);
}

fn render_rule_decisions(out: &mut Exposition, totals: &RuleTotals) {
    let help = "Decisions by every rule that was charged or refused, and by its own outcome.";
    let mut family = out.family("fluxgate_rule_decisions_total", Kind::Counter, help);
    for ((rule_set, rule), sums) in totals {
        let outcomes = Outcome::ALL.iter().zip(sums);
        for (outcome, sum) in outcomes.filter(|(_, sum)| **sum > 0) {
            let labels: [(&str, &str); 3] = [
                ("rule_set", rule_set),
                ("rule", rule),
                ("outcome", outcome.name()),
            ];
            family.sample(&labels, *sum);
        }
    }
}

fn render_durations(out: &mut Exposition, shards: &[Arc<Shard>]) {
    let mut all = DurationTotals::default();
    for shard in shards {
        all.add(&shard.durations);
    }
    let help = "Time taken by decisions, in seconds.";
    let name = "fluxgate_decision_duration_seconds";
    let mut family = out.family(name, Kind::Histogram, help);
    family.histogram(&BOUNDS, &all.buckets, all.sum);
}

/// Adds a sample for each value of a label: the sum over all threads. The counts of a thread are in
/// the order of the values.
fn add_sums(
    mut family: Family<'_>,
    shards: &[Arc<Shard>],
    label: &'static str,
    values: &[&str],
    counts: impl Fn(&Shard) -> &[Tally],
) {
    for (index, value) in values.iter().enumerate() {
        let sum = shards.iter().map(|shard| counts(shard)[index].get()).sum();
        family.sample(&[(label, value)], sum);
    }
}

fn render_holds(out: &mut Exposition, counts: &HoldCounts) {
    let help = "Holds taken through this process that have not ended.";
    out.one("fluxgate_holds", Kind::Gauge, help, counts.holds);
    let help = "Slots that these holds have of concurrency rules.";
    let mut family = out.family("fluxgate_slots_held", Kind::Gauge, help);
    for ((rule_set, rule), held) in &counts.slots {
        family.sample(&[("rule_set", rule_set), ("rule", rule)], *held);
    }
    let help = "Holds that expired before they were settled.";
    let name = "fluxgate_holds_expired_total";
    out.one(name, Kind::Counter, help, counts.expired);
    let help = "Settlements that changed nothing, because the hold had ended.";
    let name = "fluxgate_late_settles_total";
    out.one(name, Kind::Counter, help, counts.settled_late);
}

fn render_store(out: &mut Exposition, store: &StoreGauges) {
    let help = "Circuit breaker of the store: 0 closed, 1 half open, 2 open (no calls).";
    out.one("fluxgate_breaker_state", Kind::Gauge, help, store.breaker);
    let help = "Times the script was loaded because Redis did not have it.";
    let name = "fluxgate_store_script_reloads_total";
    out.one(name, Kind::Counter, help, store.script_reloads);
    let help = "Times the script could not be loaded although Redis did not have it.";
    let name = "fluxgate_store_script_reload_failures_total";
    out.one(name, Kind::Counter, help, store.script_reload_failures);
    let help = "Times the sentinels named another primary.";
    let name = "fluxgate_store_failovers_total";
    out.one(name, Kind::Counter, help, store.failovers);
    if let Some(keys) = store.memory_keys {
        let help = "Counters in the memory store.";
        out.one("fluxgate_memory_store_keys", Kind::Gauge, help, keys);
    }
    if let Some(leases) = &store.leases {
        render_leases(out, leases);
    }
}

fn render_leases(out: &mut Exposition, leases: &LeaseCounts) {
    let help = "Decisions made by units on lease, without a call to the store.";
    let mut family = out.family("fluxgate_lease_decisions_total", Kind::Counter, help);
    for (outcome, count) in [("allowed", leases.allowed), ("denied", leases.denied)] {
        family.sample(&[("outcome", outcome)], count);
    }
    let help = "Lease requests to the store, including those that only return units.";
    let name = "fluxgate_lease_asks_total";
    out.one(name, Kind::Counter, help, leases.requests);
    let help = "Units on lease here that are not spent.";
    out.one("fluxgate_lease_units", Kind::Gauge, help, leases.on_lease);
    let help = "Units granted, returned, and expired before they were spent.";
    let mut family = out.family("fluxgate_lease_units_total", Kind::Counter, help);
    for (event, units) in [
        ("granted", leases.granted),
        ("returned", leases.returned),
        ("expired", leases.expired),
    ] {
        family.sample(&[("event", event)], units);
    }
}

fn render_responses(out: &mut Exposition, shards: &[Arc<Shard>]) {
    let help = "HTTP requests by listener and status class of the response.";
    let mut family = out.family("fluxgate_http_requests_total", Kind::Counter, help);
    for listener in Listener::ALL {
        let counts: Vec<(&str, u64)> = STATUS_CLASS_NAMES
            .iter()
            .enumerate()
            .map(|(class, name)| {
                let counts = shards
                    .iter()
                    .map(|shard| &shard.responses[listener as usize]);
                (*name, counts.map(|counts| counts[class].get()).sum())
            })
            .collect();
        // A listener without requests may be closed, or not an HTTP listener.
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
