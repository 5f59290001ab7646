//! Exports traces over OTLP/HTTP as JSON.
//!
//! The OpenTelemetry crates would add about a hundred dependencies for this one message.

mod post;
mod span;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fluxgate_core::{ActiveRule, Decision, Outcome, RuleSet};
use fluxgate_http::server::Origin;
use quanta::Instant;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::clock;
use super::metrics::{Metrics, reported_rule};
use super::trace_context::TraceContext;
use crate::config::HttpUrl;
use post::Endpoint;
use span::Span;

/// How many spans may be queued. Further spans are dropped.
const MAX_SPANS: usize = 2048;
/// The most spans in one request.
const BATCH: usize = 512;
/// The longest time to collect a batch.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long sending a batch may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a failure to send is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long sending the last batch may take when the service closes.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// The queue of spans. Only requests that the caller traces and samples have a span.
#[derive(Debug)]
pub(super) struct SpanQueue {
    queue: Sender<Span>,
    metrics: Arc<Metrics>,
}

/// Sends the queued spans to a collector.
#[derive(Debug)]
pub(crate) struct Exporter {
    spans: Receiver<Span>,
    endpoint: Endpoint,
    metrics: Arc<Metrics>,
    /// When a failure to send was last logged.
    last_logged: Option<Instant>,
}

/// A running exporter.
#[derive(Debug)]
pub(crate) struct RunningExporter {
    ended: CancellationToken,
    task: JoinHandle<()>,
}

/// Creates a queue of spans and the exporter that sends them to `url`.
pub(super) fn open(url: &HttpUrl, metrics: &Arc<Metrics>) -> (SpanQueue, Exporter) {
    let (queue, spans) = mpsc::channel(MAX_SPANS);
    let exporter = Exporter {
        spans,
        endpoint: Endpoint::new(url),
        metrics: Arc::clone(metrics),
        last_logged: None,
    };
    let metrics = Arc::clone(metrics);
    (SpanQueue { queue, metrics }, exporter)
}

impl SpanQueue {
    /// Adds the decision about a request.
    pub(super) fn add_check(&self, decision: &Decision, took: Duration, origin: &Origin<'_>) {
        let outcome = decision.outcome();
        self.add("fluxgate.check", Some(decision), outcome, took, origin);
    }

    /// Adds a charge by one rule or by an ad-hoc limit.
    pub(super) fn add_consume(
        &self,
        decision: Option<&Decision>,
        outcome: Outcome,
        took: Duration,
        origin: &Origin<'_>,
    ) {
        self.add("fluxgate.consume", decision, outcome, took, origin);
    }

    fn add(
        &self,
        name: &'static str,
        decision: Option<&Decision>,
        outcome: Outcome,
        took: Duration,
        origin: &Origin<'_>,
    ) {
        let parent = origin.traceparent.and_then(TraceContext::parse);
        let Some(parent) = parent.filter(|parent| parent.sampled) else {
            return;
        };
        let end = clock::unix_time();
        let rule = decision.and_then(|decision| reported_rule(decision).0);
        let rule_set = decision.and_then(Decision::rule_set);
        let span = Span {
            name,
            parent,
            id: span::next_id(),
            start: clock::nanos(end.saturating_sub(took)),
            end: clock::nanos(end),
            rule_set: rule_set.map(|set| RuleSet::name(set).into()),
            rule: rule.map(|rule| ActiveRule::id(rule).into()),
            outcome,
            listener: origin.listener,
            request_id: origin.request_id().into(),
        };
        if self.queue.try_send(span).is_err() {
            self.metrics.spans.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Exporter {
    /// Starts sending on this runtime.
    pub(crate) fn start(self) -> RunningExporter {
        let ended = CancellationToken::new();
        let task = tokio::spawn(self.run(ended.clone()));
        RunningExporter { ended, task }
    }

    async fn run(mut self, ended: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        while !ended.is_cancelled() {
            tokio::select! {
                _ = timeout(INTERVAL, self.gather(&mut batch)) => {}
                () = ended.cancelled() => {}
            }
            self.send(&mut batch).await;
        }
        while let Ok(span) = self.spans.try_recv() {
            batch.push(span);
        }
        self.send(&mut batch).await;
    }

    /// Waits for a full batch. Cancel safe: the spans so far stay in `batch`.
    async fn gather(&mut self, batch: &mut Vec<Span>) {
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if self.spans.recv_many(batch, room).await == 0 {
                // All senders are gone.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sends a batch; drops it if that fails.
    async fn send(&mut self, batch: &mut Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        let body = span::request(batch);
        batch.clear();
        let sent = timeout(TIMEOUT, self.endpoint.post(body)).await;
        let error = match sent {
            Ok(Ok(())) => {
                self.metrics.spans.sent.fetch_add(count, Ordering::Relaxed);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} s", TIMEOUT.as_secs()),
        };
        let dropped = &self.metrics.spans.dropped;
        dropped.fetch_add(count, Ordering::Relaxed);
        let now = clock::now();
        if self
            .last_logged
            .is_none_or(|last| now.saturating_duration_since(last) >= LOG_INTERVAL)
        {
            self.last_logged = Some(now);
            let to = &self.endpoint;
            tracing::warn!(%to, error, spans = count, "cannot send spans");
        }
    }
}

impl RunningExporter {
    /// Sends the remaining spans, if the collector accepts them in time.
    pub(crate) async fn end(self) {
        self.ended.cancel();
        let _ = timeout(LAST_TIMEOUT, self.task).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::telemetry::{Telemetry, now};
    use fluxgate_core::store::Retry;
    use fluxgate_core::task::ready;
    use fluxgate_core::{AdHocDecision, Band, Limiter, MemoryStore, RequestContext, RuleSets};
    use fluxgate_http::server::Listener;

    /// Returns the spans that `record` adds.
    fn spans_of(record: impl FnOnce(&Telemetry, &Limiter, &Origin<'_>)) -> Vec<Span> {
        let rules = "rule_sets: { s: { rules: [ { id: r, scope: per_user, \
                     bands: [ { capacity: 1, window: 1h } ] } ] } }";
        let limiter = Limiter::new(RuleSets::from_yaml(rules).unwrap(), MemoryStore::default());
        let (metrics, origin) = (
            Arc::new(Metrics::new(Duration::ZERO)),
            Origin::with_ids(
                Listener::Grpc,
                None,
                Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ),
        );
        let (queue, mut sent) = mpsc::channel(10);
        let (mut telemetry, _) = Telemetry::new(&config::Telemetry::default(), false);
        telemetry.spans = Some(SpanQueue { queue, metrics });
        record(&telemetry, &limiter, &origin);
        drop(telemetry);
        std::iter::from_fn(|| sent.try_recv().ok()).collect()
    }

    #[test]
    fn requests_decided_together_have_one_span_that_describes_the_first_denial() {
        let spans = spans_of(|telemetry, limiter, origin| {
            let user = |name: &'static str| RequestContext::builder().user(name).build();
            let _ = ready(limiter.check("s", &user("b")));
            let contexts = [user("a"), user("b")];
            let decisions = ready(limiter.check_all("s", &contexts));
            telemetry.record_decisions(&contexts, &decisions, now(), origin);
        });
        let [span] = &spans[..] else {
            panic!("{spans:?}");
        };
        assert_eq!(
            (span.name, span.outcome),
            ("fluxgate.check", Outcome::Denied)
        );
        assert_eq!(span.rule.as_deref(), Some("r"));
    }

    #[test]
    fn charges_by_a_rule_and_by_an_ad_hoc_limit_are_consume_spans() {
        let spans = spans_of(|telemetry, limiter, origin| {
            let decision = ready(limiter.consume("s", "r", &["a"], None)).unwrap();
            assert_eq!(decision.band().map(Band::id), Some("b0"));
            telemetry.record_consume(&["a"], None, &decision, now(), origin);
            let ad_hoc = AdHocDecision {
                outcome: Outcome::Never,
                allowed: false,
                remaining: Some(0),
                retry_after: Retry::Never,
                reset_after: fluxgate_core::store::Micros::ZERO,
            };
            let key = fluxgate_core::AdHocKey::key(b"k");
            telemetry.record_ad_hoc_decision(&key, 1, &ad_hoc, now(), origin);
        });
        let rules: Vec<_> = spans.iter().map(|span| span.rule.as_deref()).collect();
        assert_eq!(rules, [Some("r"), None]);
        assert!(spans.iter().all(|span| span.name == "fluxgate.consume"));
    }
}
