//! Exports spans and metrics over OTLP/HTTP as JSON.
//!
//! The OpenTelemetry crates would add about a hundred dependencies for these two messages.

mod collector;
mod metric_exporter;
mod post;
mod request_span;
mod span;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fluxgate_core::{Decision, Outcome};
use fluxgate_gateway::{EndedRequest, RequestTrace};
use fluxgate_http::server::{Listener, Origin};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::trace_context::TraceContext;
use super::{clock, otlp_json};
use crate::config::Otlp;
use collector::Collector;
use metric_exporter::MetricExporter;
use post::Endpoint;
use span::{Span, SpanKind, decided_by};

/// How many spans may be queued. Further spans are dropped.
const MAX_SPANS: usize = 2048;
/// The most spans in one request.
const BATCH: usize = 512;
/// The longest time to collect a batch.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long sending the last batch may take when the service closes.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// The queue of spans. Only requests that the caller traces and samples have a span.
#[derive(Debug)]
pub(super) struct SpanQueue {
    queue: Sender<Span>,
    metrics: Arc<Metrics>,
}

/// Sends the queued spans, and the metrics, to a collector.
#[derive(Debug)]
pub(crate) struct Exporter {
    spans: SpanExporter,
    metrics: Option<MetricExporter>,
}

/// Sends the queued spans.
#[derive(Debug)]
struct SpanExporter {
    spans: Receiver<Span>,
    collector: Collector,
    metrics: Arc<Metrics>,
}

/// A running exporter.
#[derive(Debug)]
pub(crate) struct RunningExporter {
    ended: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// Creates a queue of spans and the exporter that sends them as the config says.
pub(super) fn open(config: &Otlp, metrics: &Arc<Metrics>) -> (SpanQueue, Exporter) {
    let (queue, spans) = mpsc::channel(MAX_SPANS);
    let spans = SpanExporter {
        spans,
        collector: Collector::new(Endpoint::of_traces(&config.url), "spans"),
        metrics: Arc::clone(metrics),
    };
    let exporter = config.metrics.zip(Endpoint::of_metrics(&config.url));
    let exporter = exporter.map(|(interval, endpoint)| MetricExporter {
        collector: Collector::new(endpoint, "metrics"),
        interval,
        metrics: Arc::clone(metrics),
    });
    let exporter = Exporter {
        spans,
        metrics: exporter,
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
        let mut attributes = decision.map(decided_by).unwrap_or_default();
        attributes.extend([
            otlp_json::text("fluxgate.outcome", outcome.name()),
            otlp_json::text("fluxgate.listener", origin.listener.name()),
            otlp_json::text("fluxgate.request_id", origin.request_id()),
        ]);
        let failed = matches!(outcome, Outcome::FailedOpen | Outcome::FailedClosed);
        self.push(Span {
            name: name.into(),
            // Requests to the gateway have a span of their own.
            kind: match origin.listener {
                Listener::Gateway => SpanKind::Internal,
                _ => SpanKind::Server,
            },
            trace_id: parent.trace_id,
            id: otlp_json::next_id(),
            parent: parent.span_id,
            start: clock::nanos(end.saturating_sub(took)),
            end: clock::nanos(end),
            attributes,
            error: failed.then(|| "the store failed".into()),
        });
    }

    /// Begins the span of a request to the gateway, if its sender traces and samples it.
    pub(super) fn begin_request(&self, traceparent: Option<&str>) -> Option<RequestTrace> {
        let parent = traceparent.and_then(TraceContext::parse)?;
        parent.sampled.then(|| request_span::begin(&parent))
    }

    /// Adds the span of a request to the gateway that has ended, if it has one.
    pub(super) fn add_request(&self, request: &EndedRequest<'_>) {
        if let Some(span) = request_span::of(request) {
            self.push(span);
        }
    }

    fn push(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.metrics.spans.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Exporter {
    /// Returns whether it sends metrics, too.
    pub(super) fn sends_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// Starts sending on this runtime. `collect` returns the metrics as a request.
    pub(crate) fn start(
        self,
        collect: impl Fn() -> String + Send + Sync + 'static,
    ) -> RunningExporter {
        let ended = CancellationToken::new();
        let mut tasks = vec![tokio::spawn(self.spans.run(ended.clone()))];
        if let Some(metrics) = self.metrics {
            tasks.push(tokio::spawn(metrics.run(collect, ended.clone())));
        }
        RunningExporter { ended, tasks }
    }
}

impl SpanExporter {
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
        let is_sent = self.collector.send(body).await;
        let spans = &self.metrics.spans;
        let counter = if is_sent { &spans.sent } else { &spans.dropped };
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl RunningExporter {
    /// Sends the remaining spans and the last metrics, if the collector accepts them in time.
    pub(crate) async fn end(self) {
        self.ended.cancel();
        let ended = async {
            for task in self.tasks {
                // A panic is already logged.
                let _ = task.await;
            }
        };
        let _ = timeout(LAST_TIMEOUT, ended).await;
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

    fn text<'s>(span: &'s Span, key: &str) -> Option<&'s str> {
        let mut attributes = span.attributes.iter();
        let found = attributes.find(|it| it["key"] == key)?;
        found["value"]["stringValue"].as_str()
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
        assert_eq!(span.name, "fluxgate.check");
        assert_eq!(text(span, "fluxgate.outcome"), Some("denied"));
        assert_eq!(text(span, "fluxgate.rule"), Some("r"));
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
        let rules: Vec<_> = spans.iter().map(|it| text(it, "fluxgate.rule")).collect();
        assert_eq!(rules, [Some("r"), None]);
        assert!(spans.iter().all(|span| span.name == "fluxgate.consume"));
    }
}
