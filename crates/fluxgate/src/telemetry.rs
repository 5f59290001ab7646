//! What is told of the service: metrics, logs and traces.

mod clock;
mod denials;
pub(crate) mod log;
mod metrics;
mod otlp;
mod request_ids;
mod sampler;
mod store_trouble;
mod trace_context;

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{
    AdHocDecision, Band, Decision, OnError, Outcome, RequestContext, Rule, RuleSet, StoreError,
};
use quanta::Instant;
use tracing::field;

pub(crate) use clock::{now, uptime_millis};
pub(crate) use metrics::StoreGauges;
pub(crate) use otlp::Exporter;
pub(crate) use request_ids::RequestIds;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use trace_context::any_bytes;

use crate::config;
use crate::http::{Listener, Origin};
use denials::{Denial, Denials};
use metrics::Metrics;
use otlp::Spans;
use sampler::Sampler;
use store_trouble::StoreTrouble;

/// Is told what happens, and tells it on.
#[derive(Debug)]
pub(crate) struct Telemetry {
    metrics: Arc<Metrics>,
    /// When the service began.
    began: Instant,
    /// Whether logs may name identities.
    names_identities: bool,
    denials: Denials,
    store_trouble: StoreTrouble,
    /// Clients choose the names that they ask for.
    missing_rule_sets: Sampler,
    /// What cannot be forwarded: clients choose how often that happens.
    not_forwarded: Sampler,
    /// Where spans go, if anywhere.
    spans: Option<Spans>,
}

/// Who a decision or a change is about.
#[derive(Clone, Copy)]
pub(crate) enum Who<'a> {
    Request(&'a RequestContext<'a>),
    /// The values of a rule's key.
    Identity(&'a [&'a str]),
}

impl Telemetry {
    /// As the config says. The exporter, if there is one, is to be run.
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
            store_trouble: StoreTrouble::default(),
            missing_rule_sets: Sampler::new(10, 1),
            not_forwarded: Sampler::new(10, 10),
            spans,
        };
        (telemetry, exporter)
    }

    /// A request was decided.
    pub(crate) fn decided(
        &self,
        context: &RequestContext<'_>,
        decision: &Decision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let now = now();
        let took = now.saturating_duration_since(started);
        self.settled(context, decision, (self.since_it_began(now), took), origin);
    }

    /// A request was decided that may have had to wait: deciding ended so long
    /// after the service began, and took so long.
    pub(crate) fn settled(
        &self,
        context: &RequestContext<'_>,
        decision: &Decision,
        (ended, took): (Duration, Duration),
        origin: &Origin<'_>,
    ) {
        self.count(Who::Request(context), decision, (ended, took), origin);
        if let Some(spans) = &self.spans {
            spans.add_check(decision, took, origin);
        }
    }

    /// How long after the service began that is.
    pub(crate) fn since_it_began(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Several requests were decided together. They are one span, of the first
    /// that was denied, if one was.
    pub(crate) fn all_decided(
        &self,
        contexts: &[RequestContext<'_>],
        decisions: &[Decision],
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let now = now();
        let took = now.saturating_duration_since(started);
        let when = (self.since_it_began(now), took);
        for (context, decision) in contexts.iter().zip(decisions) {
            self.count(Who::Request(context), decision, when, origin);
        }
        if let Some(spans) = &self.spans {
            let denied = decisions.iter().find(|decision| !decision.allowed());
            if let Some(decision) = denied.or(decisions.first()) {
                spans.add_check(decision, took, origin);
            }
        }
    }

    /// An identity was charged by one rule.
    pub(crate) fn consumed(
        &self,
        identity: &[&str],
        decision: &Decision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let now = now();
        let took = now.saturating_duration_since(started);
        let when = (self.since_it_began(now), took);
        self.count(Who::Identity(identity), decision, when, origin);
        if let Some(spans) = &self.spans {
            spans.add_consume(Some(decision), decision.outcome(), took, origin);
        }
    }

    /// A limit that came with the call was decided.
    pub(crate) fn own_decided(
        &self,
        decision: &AdHocDecision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let took = started.elapsed();
        let now = started.saturating_duration_since(self.began) + took;
        let outcome = decision.outcome;
        self.metrics.decided("", None, outcome, took);
        if is_of_the_store(outcome) {
            self.store_trouble.answered(now);
        }
        if !decision.allowed {
            self.tell_denial(now, origin, || Denial {
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

    /// Counts a decision, and writes a line of a denial if it is worth one.
    fn count(
        &self,
        who: Who<'_>,
        decision: &Decision,
        (now, took): (Duration, Duration),
        origin: &Origin<'_>,
    ) {
        let outcome = decision.outcome();
        let (rule, band) = told_of(decision);
        // A set that does not exist has no name here.
        let set = decision.rule_set();
        let rule_set = set.map(RuleSet::name);
        self.metrics
            .decided(rule_set.unwrap_or_default(), rule, outcome, took);
        if is_of_the_store(outcome) && set.is_some() {
            self.store_trouble.answered(now);
        }
        if !decision.allowed() || outcome == Outcome::ShadowDenied {
            self.tell_denial(now, origin, || Denial {
                rule_set,
                rule,
                band: band.map(Band::id),
                outcome,
                retry_after: decision.retry_after(),
                identity: set
                    .zip(rule)
                    .and_then(|(set, rule)| self.describe(who, set, rule)),
            });
        }
    }

    fn tell_denial<'a>(
        &self,
        now: Duration,
        origin: &Origin<'_>,
        denial: impl FnOnce() -> Denial<'a>,
    ) {
        if self.denials.pass(now) {
            self.denials.tell(&denial(), origin, self.metrics.untold());
        } else {
            self.metrics.left_untold();
        }
    }

    /// Whether logs may name identities.
    pub(crate) fn names_identities(&self) -> bool {
        self.names_identities
    }

    /// Who a rule counts, for the log; nothing where logs name nobody.
    pub(crate) fn describe(&self, who: Who<'_>, set: &RuleSet, rule: &Rule) -> Option<String> {
        let named = self.names_identities;
        named.then(|| who.describe(set, rule)).flatten()
    }

    /// The store failed; `on_error` decides, where there is something to decide.
    pub(crate) fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        self.metrics.store_failed(error.reason, on_error);
        self.store_trouble.failed(error, self.began.elapsed());
    }

    /// A rule set was asked for that does not exist. `false` if too many are
    /// asked for to tell of this one.
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

    /// Whether a request that cannot be forwarded is worth a line.
    pub(crate) fn is_worth_a_line(&self) -> bool {
        self.not_forwarded.pass(self.began.elapsed())
    }

    /// A request begins to wait.
    pub(crate) fn wait_began(&self) {
        self.metrics.wait_began();
    }

    /// A request waits no more.
    pub(crate) fn wait_ended(&self) {
        self.metrics.wait_ended();
    }

    /// The rules were read, and were good or not.
    pub(crate) fn reloaded(&self, good: bool) {
        self.metrics.reloaded(good, clock::since_1970());
    }

    /// All metrics, as Prometheus reads them.
    pub(crate) fn render(&self, store: &StoreGauges) -> String {
        self.metrics.render(store)
    }
}

impl Who<'_> {
    fn describe(self, set: &RuleSet, rule: &Rule) -> Option<String> {
        match self {
            Self::Request(context) => set.describe_identity(rule, context),
            Self::Identity(values) => set.describe_values(rule, values),
        }
    }
}

/// The rule and the band that a decision is counted by: those that are reported,
/// and of a shadow denial the first that would have refused.
fn told_of(decision: &Decision) -> (Option<&Rule>, Option<&Band>) {
    if decision.outcome() == Outcome::ShadowDenied {
        let first = decision.violated().next();
        return (first.map(|it| it.rule), first.and_then(|it| it.band));
    }
    (decision.rule(), decision.band())
}

/// Whether only a store that answers leads to this.
fn is_of_the_store(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Allowed | Outcome::Denied | Outcome::ShadowDenied
    )
}
