//! Metrics, logs and traces.

mod clock;
mod denials;
pub(crate) mod log;
mod metrics;
mod otlp;
mod request_ids;
mod sampler;
mod store_outage;
mod subject;
mod trace_context;

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{
    AdHocDecision, Band, Decision, OnError, Outcome, RequestContext, Rule, RuleSet, StoreError,
};
use quanta::Instant;
use tracing::field;

pub(crate) use clock::now;
pub(crate) use metrics::StoreGauges;
pub(crate) use otlp::Exporter;
pub(crate) use request_ids::RequestIds;
pub(crate) use subject::Subject;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use trace_context::fuzz_traceparent;

use crate::config;
use crate::http::{Listener, Origin};
use denials::{Denial, Denials};
use metrics::Metrics;
use otlp::Spans;
use sampler::Sampler;
use store_outage::StoreOutage;
use subject::{needs_store, reported_rule};

/// Records what the service does.
#[derive(Debug)]
pub(crate) struct Telemetry {
    metrics: Arc<Metrics>,
    /// When the service started.
    began: Instant,
    /// Whether logs may name identities.
    names_identities: bool,
    denials: Denials,
    store_outage: StoreOutage,
    /// Sampled: clients choose the names.
    missing_rule_sets: Sampler,
    /// Sampled: clients choose how often forwarding fails.
    not_forwarded: Sampler,
    /// The queue of spans, if traces are exported.
    spans: Option<Spans>,
}

impl Telemetry {
    /// Creates the telemetry of a config. The caller runs the exporter, if there is one.
    pub(crate) fn new(config: &config::Telemetry) -> (Self, Option<Exporter>) {
        let metrics = Arc::new(Metrics::new(clock::since_1970()));
        let (spans, exporter) = match &config.otlp {
            Some(url) => {
                let (spans, exporter) = otlp::open(url, &metrics);
                (Some(spans), Some(exporter))
            }
            None => (None, None),
        };
        let telemetry = Self {
            metrics,
            began: now(),
            names_identities: config.identities,
            denials: Denials::new(),
            store_outage: StoreOutage::default(),
            missing_rule_sets: Sampler::new(10, 1),
            not_forwarded: Sampler::new(10, 10),
            spans,
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
        self.settled(context, decision, (self.since_start(now), took), origin);
    }

    /// Records the decision about a request that may have had to wait. `ended` counts from
    /// the start of the service.
    pub(crate) fn settled(
        &self,
        context: &RequestContext<'_>,
        decision: &Decision,
        (ended, took): (Duration, Duration),
        origin: &Origin<'_>,
    ) {
        self.count(Subject::Request(context), decision, (ended, took), origin);
        if let Some(spans) = &self.spans {
            spans.add_check(decision, took, origin);
        }
    }

    /// Returns the time from the start of the service to `now`.
    pub(crate) fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Records requests that were decided together. They are one span, that of the first
    /// denial, if there is one.
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
            self.count(Subject::Request(context), decision, when, origin);
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
        identity: &[&str],
        decision: &Decision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let now = now();
        let took = now.saturating_duration_since(started);
        let when = (self.since_start(now), took);
        self.count(Subject::Identity(identity), decision, when, origin);
        if let Some(spans) = &self.spans {
            spans.add_consume(Some(decision), decision.outcome(), took, origin);
        }
    }

    /// Records the decision about a limit that came with the call.
    pub(crate) fn ad_hoc_decided(
        &self,
        decision: &AdHocDecision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let took = started.elapsed();
        let now = started.saturating_duration_since(self.began) + took;
        let outcome = decision.outcome;
        self.metrics.decided("", None, outcome, took);
        if needs_store(outcome) {
            self.store_outage.answered(now);
        }
        if !decision.allowed {
            self.log_denial(now, origin, || Denial {
                rule_set: None,
                rule: None,
                band: None,
                outcome,
                retry_after: decision.retry_after,
                identity: None,
            });
        }
        if let Some(spans) = &self.spans {
            spans.add_consume(None, outcome, took, origin);
        }
    }

    /// Counts a decision, and logs a denial unless too many are logged.
    fn count(
        &self,
        subject: Subject<'_>,
        decision: &Decision,
        (now, took): (Duration, Duration),
        origin: &Origin<'_>,
    ) {
        let outcome = decision.outcome();
        let (rule, band) = reported_rule(decision);
        // A set that does not exist is counted without a name.
        let set = decision.rule_set();
        let rule_set = set.map(RuleSet::name);
        self.metrics
            .decided(rule_set.unwrap_or_default(), rule, outcome, took);
        if needs_store(outcome) && set.is_some() {
            self.store_outage.answered(now);
        }
        if !decision.allowed() || outcome == Outcome::ShadowDenied {
            self.log_denial(now, origin, || Denial {
                rule_set,
                rule,
                band: band.map(Band::id),
                outcome,
                retry_after: decision.retry_after(),
                identity: set
                    .zip(rule)
                    .and_then(|(set, rule)| self.describe(subject, set, rule)),
            });
        }
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
            self.metrics.denial_unlogged();
        }
    }

    /// Returns whether logs may name identities.
    pub(crate) fn names_identities(&self) -> bool {
        self.names_identities
    }

    /// Describes the identity that a rule counts, if logs may name identities.
    pub(crate) fn describe(
        &self,
        subject: Subject<'_>,
        set: &RuleSet,
        rule: &Rule,
    ) -> Option<String> {
        let named = self.names_identities;
        named.then(|| subject.describe(set, rule)).flatten()
    }

    /// Records a failure of the store. `on_error` decides, if there is a decision to make.
    pub(crate) fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        self.metrics.store_failed(error.reason, on_error);
        self.store_outage.failed(error, self.began.elapsed());
    }

    /// Logs a request for a rule set that does not exist. Returns `false` if it is left out
    /// because there are too many.
    pub(crate) fn rule_set_missing(&self, name: &str) -> bool {
        let passes = self.missing_rule_sets.pass(self.began.elapsed());
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
        self.metrics.answered(listener, status);
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

    /// Returns whether to log a request that cannot be forwarded.
    pub(crate) fn should_log_unforwarded(&self) -> bool {
        self.not_forwarded.pass(self.began.elapsed())
    }

    /// Records that a request begins to wait.
    pub(crate) fn wait_began(&self) {
        self.metrics.wait_began();
    }

    /// Records that a request stops waiting.
    pub(crate) fn wait_ended(&self) {
        self.metrics.wait_ended();
    }

    /// Records a reload of the rules, and whether they were valid.
    pub(crate) fn reloaded(&self, good: bool) {
        self.metrics.reloaded(good, clock::since_1970());
    }

    /// Renders all metrics for Prometheus.
    pub(crate) fn render(&self, store: &StoreGauges) -> String {
        self.metrics.render(store)
    }
}
