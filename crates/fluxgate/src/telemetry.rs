//! Metrics, logs and traces.

mod clock;
mod denials;
mod live;
pub(crate) mod log;
mod metrics;
mod open_holds;
mod otlp;
mod recent;
mod sampler;
mod store_outage;
mod top;
mod trace_context;

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::key::{Fingerprinter, RuleNumber};
use fluxgate_core::{
    ActiveRule, AdHocDecision, Band, Decision, HoldId, OnError, Outcome, RequestContext,
    RuleAction, RuleSet, StoreError,
};
use fluxgate_gateway::CallEnd;
use fluxgate_http::{Listener, Origin};
use quanta::Instant;
use tracing::field;

pub(crate) use clock::{now, unix_time};
pub(crate) use live::LiveSecond;
pub(crate) use metrics::{AdminDenial, StoreGauges};
pub(crate) use otlp::Exporter;
pub(crate) use recent::{MAX_RECENT, RecentRequest};
pub(crate) use top::{MAX_WINDOW, Top, TopBy};
pub(crate) use trace_context::RequestIds;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use trace_context::fuzz_traceparent;

use crate::config;
use denials::{Denial, DenialLog};
use metrics::{Metrics, reported_rule};
use open_holds::OpenHolds;
use otlp::Spans;
use recent::Recording;
use sampler::Sampler;
use store_outage::{StoreOutage, comes_from_store};
use top::TopSum;

/// Records the metrics, log lines and spans of the service.
#[derive(Debug)]
pub(crate) struct Telemetry {
    metrics: Arc<Metrics>,
    /// When the service started.
    started: Instant,
    /// Whether logs may name identities.
    names_identities: bool,
    denials: DenialLog,
    holds: OpenHolds,
    store_outage: StoreOutage,
    /// Sampled because clients choose the names.
    missing_rule_sets: Sampler,
    /// Sampled because clients choose how often forwarding fails.
    unforwarded: Sampler,
    /// Sampled because clients choose how often a handshake fails.
    tls_failures: Sampler,
    /// The queue of spans, if traces are exported.
    spans: Option<Spans>,
    /// Whether requests are recorded.
    records: bool,
    /// Hashes identities to count them.
    fingerprinter: Fingerprinter,
}

/// Where the identity that a rule counts comes from.
#[derive(Clone, Copy)]
pub(crate) enum IdentitySource<'a> {
    Request(&'a RequestContext<'a>),
    /// The values of the rule's key.
    Values(&'a [&'a str]),
}

impl Telemetry {
    /// Creates the telemetry that the config describes. The caller runs the exporter, if any.
    /// `records` says whether the last requests are kept.
    pub(crate) fn new(config: &config::Telemetry, records: bool) -> (Self, Option<Exporter>) {
        let metrics = Arc::new(Metrics::new(clock::unix_time()));
        let (spans, exporter) = match &config.otlp {
            Some(url) => {
                let (spans, exporter) = otlp::open(url, &metrics);
                (Some(spans), Some(exporter))
            }
            None => (None, None),
        };
        let telemetry = Self {
            metrics,
            started: now(),
            names_identities: config.identities,
            denials: DenialLog::new(),
            holds: OpenHolds::default(),
            store_outage: StoreOutage::default(),
            missing_rule_sets: Sampler::new(10, 1),
            unforwarded: Sampler::new(10, 10),
            tls_failures: Sampler::new(10, 1),
            spans,
            records,
            fingerprinter: Fingerprinter::random(),
        };
        (telemetry, exporter)
    }

    /// Records the decision about a request.
    pub(crate) fn decided(
        &self,
        context: &RequestContext<'_>,
        decision: &Decision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let now = now();
        let took = now.saturating_duration_since(started);
        self.decided_at(context, decision, (self.since_start(now), took), origin);
    }

    /// Records the decision about a request that may have waited. `ended` counts from the
    /// start of the service.
    pub(crate) fn decided_at(
        &self,
        context: &RequestContext<'_>,
        decision: &Decision,
        (ended, took): (Duration, Duration),
        origin: &Origin<'_>,
    ) {
        let identity = IdentitySource::Request(context);
        self.count(identity, decision, (ended, took), origin);
        self.record(context, decision);
        self.add_hold(context, None, decision, ended);
        if let Some(spans) = &self.spans {
            spans.add_check(decision, took, origin);
        }
    }

    /// Returns the time from the start of the service to `now`.
    pub(crate) fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Records requests that were decided together. They share one span, which describes
    /// the first denial, if any.
    pub(crate) fn all_decided(
        &self,
        contexts: &[RequestContext<'_>],
        decisions: &[Decision],
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let now = now();
        let took = now.saturating_duration_since(started);
        let when = (self.since_start(now), took);
        for (context, decision) in contexts.iter().zip(decisions) {
            self.count(IdentitySource::Request(context), decision, when, origin);
            self.record(context, decision);
            self.add_hold(context, None, decision, when.0);
        }
        if let Some(spans) = &self.spans {
            let denied = decisions.iter().find(|decision| !decision.allowed());
            if let Some(decision) = denied.or(decisions.first()) {
                spans.add_check(decision, took, origin);
            }
        }
    }

    /// Records that one rule charged an identity.
    pub(crate) fn consumed(
        &self,
        (identity, cost): (&[&str], Option<u64>),
        decision: &Decision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let now = now();
        let took = now.saturating_duration_since(started);
        let when = (self.since_start(now), took);
        self.count(IdentitySource::Values(identity), decision, when, origin);
        self.add_hold(&RequestContext::default(), cost, decision, when.0);
        if let Some(spans) = &self.spans {
            spans.add_consume(Some(decision), decision.outcome(), took, origin);
        }
    }

    /// Records a decision by an ad-hoc limit, which the call itself contains.
    pub(crate) fn ad_hoc_decided(
        &self,
        decision: &AdHocDecision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let took = started.elapsed();
        let now = self.since_start(started) + took;
        let outcome = decision.outcome;
        self.metrics
            .count_decision("", None, (outcome, decision.allowed), took, None);
        if comes_from_store(outcome) {
            self.store_outage.answered(now);
        }
        if !decision.allowed {
            self.log_denial(now, origin, || Denial {
                rule_set: None,
                rule: None,
                band: None,
                outcome,
                retry_after: decision.retry_after,
                wait_refused: None,
                identity: None,
            });
        }
        if let Some(spans) = &self.spans {
            spans.add_consume(None, outcome, took, origin);
        }
    }

    /// Counts a decision, and logs a denial if the sampler lets it pass.
    fn count(
        &self,
        identity: IdentitySource<'_>,
        decision: &Decision,
        (now, took): (Duration, Duration),
        origin: &Origin<'_>,
    ) {
        let outcome = decision.outcome();
        let (rule, band) = reported_rule(decision);
        // Clients choose the names of missing rule sets, so those are counted without one.
        let set = decision.rule_set();
        let rule_set = set.map(RuleSet::name);
        let used = decision.limit().zip(decision.remaining());
        let used = used.map(|(limit, left)| limit.saturating_sub(left) * 1000 / limit.max(1));
        let result = (outcome, decision.allowed());
        self.metrics
            .count_decision(rule_set.unwrap_or_default(), rule, result, took, used);
        self.count_identities(identity, decision, now);
        if comes_from_store(outcome) && set.is_some() {
            self.store_outage.answered(now);
        }
        if !decision.allowed() || outcome == Outcome::ShadowDenied {
            let refusal = decision.wait_refusal();
            if let Some(refusal) = refusal {
                self.metrics.count_refused_wait(refusal);
            }
            self.log_denial(now, origin, || Denial {
                rule_set,
                rule,
                band: band.map(Band::id),
                outcome,
                retry_after: decision.retry(),
                wait_refused: refusal,
                identity: set
                    .zip(rule.filter(|rule| rule.action() == RuleAction::Limit))
                    .and_then(|(set, rule)| self.describe_identity(identity, set, rule)),
            });
        }
    }

    /// Counts a request for the identity that each rule counts.
    fn count_identities(&self, source: IdentitySource<'_>, decision: &Decision, now: Duration) {
        let Some(set) = decision.rule_set() else {
            return;
        };
        for (rule, denies) in decision.rules() {
            // A global rule has no identities.
            if rule.key().is_empty() {
                continue;
            }
            let identity = match source {
                IdentitySource::Request(context) => set.identity_of(rule, context),
                IdentitySource::Values(values) => set.identity_of_values(rule, values),
            };
            if let Some(identity) = identity {
                let hash = self.fingerprinter.of(&identity);
                let is_denied = denies && !decision.allowed();
                self.metrics.count_identities(|top| {
                    top.count(now, rule.number(), (&identity, hash), is_denied);
                });
            }
        }
    }

    /// Records a request, if requests are recorded.
    fn record(&self, context: &RequestContext<'_>, decision: &Decision) {
        if let Some(set) = decision.rule_set().filter(|_| self.records) {
            let at = unix_time();
            self.metrics
                .record(|recent| recent.record(at, set.name(), context));
        }
    }

    /// Returns whether requests are recorded.
    pub(crate) fn records(&self) -> bool {
        self.records
    }

    /// Returns the last recorded requests, the oldest first.
    pub(crate) fn recent(&self, most: usize) -> Vec<RecentRequest> {
        let most = most.min(MAX_RECENT);
        let mut recordings = Vec::new();
        self.metrics
            .each_recent(|requests| recordings.push(requests.copy(most)));
        let mut recent: Vec<_> = recordings.iter().flat_map(Recording::requests).collect();
        recent.sort_by_key(|request| request.at);
        recent.drain(..recent.len().saturating_sub(most));
        recent
    }

    /// Returns the heaviest identities of the last time, at most a minute.
    pub(crate) fn top(
        &self,
        by: TopBy,
        window: Duration,
        most: usize,
        is_wanted: impl Fn(RuleNumber) -> bool,
    ) -> Top {
        let mut sum = TopSum::new(by, window, self.started.elapsed());
        self.metrics.each_top(|counts| sum.add(counts));
        sum.into_top(most, is_wanted)
    }

    /// Counts the hold of a decision, if it has one. `cost` replaces that of its rules.
    fn add_hold(
        &self,
        context: &RequestContext<'_>,
        cost: Option<u64>,
        decision: &Decision,
        now: Duration,
    ) {
        if let Some(hold) = decision.hold() {
            let slots = |rule: &ActiveRule| rule.slots_of(context, cost);
            let span = decision.hold_span().as_duration();
            self.holds.add(hold, decision, slots, now + span, now);
        }
    }

    /// Records that a hold was settled, and whether it was still held.
    pub(crate) fn hold_settled(&self, hold: HoldId, was_held: bool) {
        self.holds.settled(hold, was_held);
    }

    /// Records that a hold lives for a time from now on.
    pub(crate) fn hold_renewed(&self, hold: HoldId, span: Duration) {
        self.holds.renewed(hold, self.started.elapsed() + span);
    }

    /// Records that the hold of a running request has expired.
    pub(crate) fn hold_expired(&self, hold: HoldId) {
        self.holds.expired(hold);
    }

    fn log_denial<'a>(
        &self,
        now: Duration,
        origin: &Origin<'_>,
        denial: impl FnOnce() -> Denial<'a>,
    ) {
        if self.denials.pass(now) {
            self.denials.log(&denial(), origin, self.metrics.unlogged());
        } else {
            self.metrics.count_unlogged_denial();
        }
    }

    /// Returns whether logs may name identities.
    pub(crate) fn names_identities(&self) -> bool {
        self.names_identities
    }

    /// Describes the identity that a rule counts, if logs may name identities.
    pub(crate) fn describe_identity(
        &self,
        source: IdentitySource<'_>,
        set: &RuleSet,
        rule: &ActiveRule,
    ) -> Option<String> {
        if !self.names_identities {
            return None;
        }
        match source {
            IdentitySource::Request(context) => set.describe_identity(rule, context),
            IdentitySource::Values(values) => set.describe_values(rule, values),
        }
    }

    /// Records a failure of the store, and the `on_error` policy if it decided a request.
    pub(crate) fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        self.metrics.count_store_failure(error.reason, on_error);
        self.store_outage.failed(error, self.started.elapsed());
    }

    /// Logs a request for a rule set that does not exist. Returns `false` if the sampler
    /// left the line out.
    pub(crate) fn rule_set_missing(&self, name: &str) -> bool {
        let passes = self.missing_rule_sets.pass(self.started.elapsed());
        if passes {
            tracing::warn!(rule_set = name, "there is no such rule set");
        }
        passes
    }

    /// Records the response to an HTTP request. `ids` is only called if the response is
    /// logged.
    pub(crate) fn record_response<'a, K: Into<RequestIds<'a>>>(
        &self,
        listener: Listener,
        status: u16,
        ids: impl FnOnce() -> K,
    ) {
        self.metrics.count_response(listener, status);
        if tracing::enabled!(tracing::Level::DEBUG) {
            let RequestIds { request_id, trace } = ids().into();
            tracing::debug!(
                listener = listener.name(),
                status,
                request_id,
                trace_id = trace.map(|trace| field::display(trace.trace_id)),
                span_id = trace.map(|trace| field::display(trace.span_id)),
                "answered"
            );
        }
    }

    /// Records a call to a language model with the tokens that it is charged.
    pub(crate) fn llm_call_settled(&self, end: CallEnd, prompt: u64, completion: u64) {
        self.metrics.llm.count(end, prompt, completion);
    }

    /// Records that a call of the admin API was refused.
    pub(crate) fn admin_denied(&self, denial: AdminDenial) {
        self.metrics.admin.count(denial);
    }

    /// Returns whether to log that a request could not be forwarded.
    pub(crate) fn should_log_unforwarded(&self) -> bool {
        self.unforwarded.pass(self.started.elapsed())
    }

    /// Counts a TLS handshake that failed. Returns whether to log it.
    pub(crate) fn tls_handshake_failed(&self, listener: Listener) -> bool {
        self.metrics.count_tls_failure(listener);
        self.tls_failures.pass(self.started.elapsed())
    }

    /// Records that a request starts to wait.
    pub(crate) fn wait_began(&self) {
        self.metrics.wait_began();
    }

    /// Records that a request stops waiting.
    pub(crate) fn wait_ended(&self) {
        self.metrics.wait_ended();
    }

    /// Records a reload of the rules, and whether they were valid.
    pub(crate) fn reloaded(&self, good: bool) {
        self.metrics.reloaded(good, clock::unix_time());
    }

    /// Renders all metrics for Prometheus.
    pub(crate) fn render(&self, store: &StoreGauges) -> String {
        // The memory store is this process's own.
        let is_shared = store.memory_keys.is_none();
        let holds = self.holds.count(is_shared, self.started.elapsed());
        self.metrics.render(store, &holds)
    }
}
