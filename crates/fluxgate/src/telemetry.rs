//! Metrics, logs and traces.

mod access_log;
mod clock;
mod denial_table;
mod denials;
mod identity_source;
mod live;
pub(crate) mod log;
mod metrics;
mod open_holds;
mod otlp;
mod otlp_json;
pub(crate) mod percent;
mod recent;
mod rule_names;
mod sampler;
mod store_outage;
mod thresholds;
mod top;
pub(crate) mod trace_context;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::key::{Fingerprinter, RuleNumber, describe_identity};
use fluxgate_core::{
    ActiveRule, AdHocDecision, AdHocKey, Band, Decision, HoldId, OnError, Outcome, RequestContext,
    RuleAction, RuleSet, StoreError,
};
use fluxgate_gateway::{CallEnd, EndedRequest, RequestTrace};
use fluxgate_http::server::{Listener, Origin};
use quanta::Instant;
use tracing::field;

pub(crate) use clock::{now, unix_time};
pub(crate) use denial_table::{DenialTable, DeniedIdentity};
pub(crate) use identity_source::IdentitySource;
pub(crate) use live::LiveSecond;
pub(crate) use metrics::{
    AdminDenial, EventGauges, HistoryCounts, MetricSources, ReloadedPart, RuleTotals, StoreGauges,
    WebhookGauges,
};
pub(crate) use otlp::Exporter;
pub(crate) use recent::{MAX_RECENT, RecentRequest, encoded_at};
pub(crate) use rule_names::RuleNames;
pub(crate) use store_outage::StoreOutageChange;
pub(crate) use thresholds::{DIP, FoundShare, FoundState, Thresholds};
pub(crate) use top::{MAX_WINDOW, OutcomeCounts, TopBy, TopEntry, TopList, TopOutcome, is_text};
pub(crate) use trace_context::RequestIds;

use crate::config;
use crate::identities::Identities;
use access_log::{AccessLog, AccessLogError, AccessLogWriter};
use denials::{Denial, DenialLog};
use live::LiveReader;
use metrics::{Metrics, OwnSources, lock, reported_rule};
use open_holds::OpenHolds;
use otlp::SpanQueue;
use recent::EncodedRequests;
use sampler::Sampler;
use store_outage::{StoreOutage, comes_from_store};
use top::{CountedRequest, MAX_IDENTITY, TopSum};

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
    /// The shares of limits that identities have reached.
    thresholds: Thresholds,
    /// Sampled because clients choose the names.
    missing_rule_sets: Sampler,
    /// Sampled because clients choose how often forwarding fails.
    unforwarded: Sampler,
    /// Sampled because clients choose how often a handshake fails.
    tls_failures: Sampler,
    /// Sampled for the same reason.
    proxy_failures: Sampler,
    /// The queue of spans, if traces are exported.
    spans: Option<SpanQueue>,
    /// Whether metrics are exported.
    exports_metrics: bool,
    /// Whether requests are recorded.
    is_recording: bool,
    /// Whether it is recorded who was denied, and what identities were charged.
    keeps_record: AtomicBool,
    /// Hashes identities to count them.
    fingerprinter: Fingerprinter,
}

/// When a decision ended, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Since the start of the service.
    pub(crate) ended: Duration,
    pub(crate) took: Duration,
}

impl Telemetry {
    /// Creates the telemetry that the config describes. The caller runs the exporter, if any.
    /// `is_recording` says whether the last requests are kept.
    pub(crate) fn new(config: &config::Telemetry, is_recording: bool) -> (Self, Option<Exporter>) {
        let metrics = Arc::new(Metrics::new(clock::unix_time()));
        let opened = config.otlp.as_ref().map(|it| otlp::open(it, &metrics));
        let (spans, exporter) = opened.unzip();
        let telemetry = Self {
            metrics,
            started: now(),
            names_identities: config.identities,
            denials: DenialLog::new(),
            holds: OpenHolds::default(),
            store_outage: StoreOutage::default(),
            thresholds: Thresholds::default(),
            missing_rule_sets: Sampler::new(10, 1),
            unforwarded: Sampler::new(10, 10),
            tls_failures: Sampler::new(10, 1),
            proxy_failures: Sampler::new(10, 1),
            spans,
            exports_metrics: exporter.as_ref().is_some_and(Exporter::sends_metrics),
            is_recording,
            keeps_record: AtomicBool::new(false),
            fingerprinter: Fingerprinter::random(),
        };
        (telemetry, exporter)
    }

    /// Records the decision about a request.
    pub(crate) fn record_decision(
        &self,
        context: &RequestContext<'_>,
        decision: &Decision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let timing = self.timing_since(started);
        self.record_timed_decision(context, decision, timing, origin);
    }

    /// Records the decision about a request that may have waited.
    pub(crate) fn record_timed_decision(
        &self,
        context: &RequestContext<'_>,
        decision: &Decision,
        timing: Timing,
        origin: &Origin<'_>,
    ) {
        let identity = IdentitySource::Request(context);
        self.count(identity, decision, timing, origin);
        self.record(context, decision);
        self.add_hold(context, None, decision, timing.ended);
        if let Some(spans) = &self.spans {
            spans.add_check(decision, timing.took, origin);
        }
    }

    /// Returns the timing of a decision that starts at `started` and ends now.
    fn timing_since(&self, started: Instant) -> Timing {
        let now = now();
        Timing {
            ended: self.since_start(now),
            took: now.saturating_duration_since(started),
        }
    }

    /// Returns the time from the start of the service to `now`.
    pub(crate) fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Records requests that were decided together. They share one span, which describes
    /// the first denial, if any.
    pub(crate) fn record_decisions(
        &self,
        contexts: &[RequestContext<'_>],
        decisions: &[Decision],
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let timing = self.timing_since(started);
        for (context, decision) in contexts.iter().zip(decisions) {
            self.count(IdentitySource::Request(context), decision, timing, origin);
            self.record(context, decision);
            self.add_hold(context, None, decision, timing.ended);
        }
        if let Some(spans) = &self.spans {
            let denied = decisions.iter().find(|decision| !decision.allowed());
            if let Some(decision) = denied.or(decisions.first()) {
                spans.add_check(decision, timing.took, origin);
            }
        }
    }

    /// Records that one rule charged an identity.
    pub(crate) fn record_consume(
        &self,
        identity: &[&str],
        cost: Option<u64>,
        decision: &Decision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let timing = self.timing_since(started);
        let source = IdentitySource::Values(identity, cost);
        self.count(source, decision, timing, origin);
        self.add_hold(&RequestContext::default(), cost, decision, timing.ended);
        if let Some(spans) = &self.spans {
            spans.add_consume(Some(decision), decision.outcome(), timing.took, origin);
        }
    }

    /// Records a decision by an ad-hoc limit, which the call itself contains.
    pub(crate) fn record_ad_hoc_decision(
        &self,
        key: &AdHocKey,
        cost: u64,
        decision: &AdHocDecision,
        started: Instant,
        origin: &Origin<'_>,
    ) {
        let took = started.elapsed();
        let now = self.since_start(started) + took;
        let outcome = decision.outcome;
        self.metrics
            .count_decision("", None, outcome, decision.allowed, took, None);
        self.metrics.count_rule("", None, outcome);
        if comes_from_store(outcome) {
            self.store_outage.record_answer(now);
        }
        self.count_ad_hoc(key, cost, decision, now);
        if !decision.allowed {
            self.count_denial("", None, outcome, None, None, None, now);
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

    /// Counts a decision, and logs a denial if the sampler allows it.
    fn count(
        &self,
        identity: IdentitySource<'_>,
        decision: &Decision,
        timing: Timing,
        origin: &Origin<'_>,
    ) {
        let Timing { ended: now, took } = timing;
        let (outcome, is_allowed) = (decision.outcome(), decision.allowed());
        let (rule, band) = reported_rule(decision);
        // Clients choose the names of missing rule sets, so those are counted without one.
        let set = decision.rule_set();
        let rule_set = set.map(RuleSet::name);
        let used = decision
            .limit()
            .zip(decision.remaining())
            .map(|(limit, left)| limit.saturating_sub(left) * 1000 / limit.max(1));
        let set_name = rule_set.unwrap_or_default();
        self.metrics
            .count_decision(set_name, rule, outcome, is_allowed, took, used);
        self.count_rules(set_name, decision);
        self.count_identities(identity, decision, now);
        let identity_of = |set: &RuleSet, rule: &ActiveRule| identity.identity(set, rule);
        self.thresholds.record(identity_of, decision, now);
        if comes_from_store(outcome) && set.is_some() {
            self.store_outage.record_answer(now);
        }
        if !is_allowed || outcome == Outcome::ShadowDenied {
            self.count_denials(set_name, identity, decision, now);
            let refusal = decision.wait_refusal();
            if let Some(refusal) = refusal {
                let shards = &self.metrics.shards;
                shards.count(|shard| shard.refused_waits[refusal as usize].add(1));
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

    /// Counts a decision for each rule that was charged or refused; without any rule, once.
    fn count_rules(&self, rule_set: &str, decision: &Decision) {
        for it in decision.rule_outcomes() {
            self.metrics.count_rule(rule_set, Some(it.rule), it.outcome);
        }
        if decision.rules().next().is_none() {
            self.metrics.count_rule(rule_set, None, decision.outcome());
        }
    }

    /// Returns the counters of the record of what happened.
    pub(crate) fn history(&self) -> &HistoryCounts {
        &self.metrics.history
    }

    /// Starts to record who is denied, and what identities are charged.
    pub(crate) fn keep_record(&self) {
        self.keeps_record.store(true, Ordering::Relaxed);
    }

    fn keeps_record(&self) -> bool {
        self.keeps_record.load(Ordering::Relaxed)
    }

    /// Records who was denied, by which rules.
    fn count_denials(
        &self,
        rule_set: &str,
        source: IdentitySource<'_>,
        decision: &Decision,
        now: Duration,
    ) {
        if !self.keeps_record() {
            return;
        }
        let context = match source {
            IdentitySource::Request(context) => Some(context),
            IdentitySource::Values(..) => None,
        };
        if decision.rules().next().is_none() {
            let outcome = decision.outcome();
            self.count_denial(rule_set, None, outcome, None, None, context, now);
        }
        for it in decision.rule_outcomes() {
            if !it.refused && it.outcome != Outcome::ShadowDenied {
                continue;
            }
            let limits = it.rule.action() == RuleAction::Limit;
            let set = decision.rule_set().filter(|_| limits);
            let identity = set.and_then(|set| source.identity(set, it.rule));
            let (identity, band) = (identity.as_deref(), it.band.map(Band::id));
            self.count_denial(
                rule_set,
                Some(it.rule),
                it.outcome,
                identity,
                band,
                context,
                now,
            );
        }
    }

    #[expect(clippy::too_many_arguments, reason = "they are what a row has")]
    fn count_denial(
        &self,
        rule_set: &str,
        rule: Option<&ActiveRule>,
        outcome: Outcome,
        identity: Option<&[u8]>,
        band: Option<&str>,
        context: Option<&RequestContext<'_>>,
        at: Duration,
    ) {
        if !self.keeps_record() {
            return;
        }
        let hash = identity.map_or(0, |identity| self.fingerprinter.of(identity));
        let shards = &self.metrics.shards;
        shards.count_decision(rule_set, rule, |shard, counters| {
            lock(&shard.denials).count(&denial_table::Denial {
                names: &counters.names,
                identity,
                hash,
                outcome,
                band,
                context,
                at,
            });
        });
    }

    /// Passes to `each` who was denied since the last time, by thread.
    pub(crate) fn take_denials(&self, mut each: impl FnMut(&DenialTable)) {
        for shard in self.metrics.shards.all() {
            // The thread does not wait while its table is read.
            let taken = lock(&shard.denials).take();
            if let Some(mut table) = taken {
                each(&table);
                table.clear();
                lock(&shard.denials).put_back(table);
            }
        }
    }

    /// Returns the outcomes of all rules since the service started.
    pub(crate) fn rule_totals(&self) -> RuleTotals {
        self.metrics.read_rule_totals()
    }

    /// Returns the outcomes of all decisions since the service started. Each counts once, however
    /// many rules took part in it.
    pub(crate) fn outcome_totals(&self) -> [u64; Outcome::ALL.len()] {
        self.metrics.read_outcome_totals()
    }

    /// Counts a request for the identity that each rule counts.
    fn count_identities(&self, source: IdentitySource<'_>, decision: &Decision, now: Duration) {
        let Some(set) = decision.rule_set() else {
            return;
        };
        let keeps_record = self.keeps_record();
        for (rule, denies) in decision.rules() {
            if rule.action() != RuleAction::Limit {
                continue;
            }
            if let Some(identity) = source.identity(set, rule) {
                let hash = self.fingerprinter.of(&identity);
                let units = || if keeps_record { source.cost(rule) } else { 0 };
                let request = CountedRequest::of(decision, rule, denies, units);
                self.metrics.shards.count(|shard| {
                    lock(&shard.top).count(now, rule.number(), &identity, hash, request);
                });
            }
        }
    }

    /// Counts a request for the key of a limit that comes with the call.
    fn count_ad_hoc(&self, key: &AdHocKey, cost: u64, decision: &AdHocDecision, now: Duration) {
        let subject = key.as_bytes();
        // What is kept of a longer one would no longer tell the name from the key.
        if subject.len() > MAX_IDENTITY {
            return;
        }
        let outcome = match decision.outcome {
            Outcome::Denied => TopOutcome::Denied,
            Outcome::Never => TopOutcome::Never,
            Outcome::Allowed => TopOutcome::Allowed,
            _ => TopOutcome::Fallback,
        };
        let request = CountedRequest {
            outcome: Some(outcome),
            is_denied: !decision.allowed,
            units: if decision.allowed { cost } else { 0 },
        };
        let hash = self.fingerprinter.of(subject);
        self.metrics.shards.count(|shard| {
            lock(&shard.top).count(now, RuleNumber::NONE, subject, hash, request);
        });
    }

    /// Takes the units that identities were charged since the last time.
    pub(crate) fn take_units(&self, mut add: impl FnMut(RuleNumber, &[u8], u64)) {
        for shard in self.metrics.shards.all() {
            lock(&shard.top).take_units(&mut add);
        }
    }

    /// Records a request, if requests are recorded.
    fn record(&self, context: &RequestContext<'_>, decision: &Decision) {
        if let Some(set) = decision.rule_set().filter(|_| self.is_recording) {
            let at = unix_time();
            let shards = &self.metrics.shards;
            let (rule, _) = reported_rule(decision);
            let decided = (decision.outcome(), rule.map(ActiveRule::id));
            shards.count(|shard| lock(&shard.recent).record(at, set.name(), context, decided));
        }
    }

    /// Returns whether requests are recorded.
    pub(crate) fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Returns the last recorded requests as they are encoded, the oldest first.
    pub(crate) fn recent_encoded(&self, most: usize) -> Vec<Vec<u8>> {
        let most = most.min(MAX_RECENT);
        let shards = self.metrics.shards.all();
        let recordings = shards.iter().map(|shard| lock(&shard.recent).copy(most));
        let recordings: Vec<_> = recordings.collect();
        let mut recent: Vec<_> = recordings.iter().flat_map(EncodedRequests::each).collect();
        recent.sort_by_key(|request| encoded_at(request));
        let skipped = recent.len().saturating_sub(most);
        recent[skipped..].iter().map(|it| it.to_vec()).collect()
    }

    /// Returns the heaviest identities of the window, which is at most a minute.
    pub(crate) fn top(
        &self,
        by: TopBy,
        window: Duration,
        most: usize,
        includes: impl Fn(RuleNumber, &[u8]) -> bool,
    ) -> TopList {
        let mut sum = TopSum::new(by, window, self.started.elapsed());
        for shard in self.metrics.shards.all() {
            sum.add(&lock(&shard.top));
        }
        sum.into_list(most, includes)
    }

    /// Counts the hold of a decision, if it has one. `cost` replaces the cost of its rules.
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
    pub(crate) fn record_settled_hold(&self, hold: HoldId, was_held: bool) {
        self.holds.record_settled(hold, was_held);
    }

    /// Records that a hold was extended to `span` from now.
    pub(crate) fn record_renewed_hold(&self, hold: HoldId, span: Duration) {
        self.holds
            .record_renewed(hold, self.started.elapsed() + span);
    }

    /// Records that the hold of a running request has expired.
    pub(crate) fn record_expired_hold(&self, hold: HoldId) {
        self.holds.record_expired(hold);
    }

    fn log_denial<'a>(
        &self,
        now: Duration,
        origin: &Origin<'_>,
        denial: impl FnOnce() -> Denial<'a>,
    ) {
        if self.denials.should_log(now) {
            self.denials.log(&denial(), origin, self.metrics.unlogged());
        } else {
            self.metrics.shards.count(|shard| shard.unlogged.add(1));
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
        let identity = self.names_identities.then(|| source.identity(set, rule));
        Some(describe_identity(&identity.flatten()?))
    }

    /// Records a failure of the store, and the `on_error` policy if it decided a request.
    pub(crate) fn record_store_failure(&self, error: &StoreError, on_error: Option<OnError>) {
        self.metrics.count_store_failure(error.reason, on_error);
        self.store_outage
            .record_failure(error, self.started.elapsed());
    }

    /// Notes whether the store answers calls that no decision waits for. It can fail while there are
    /// no requests.
    pub(crate) fn note_store(&self, reached: Result<(), &StoreError>) {
        let now = self.started.elapsed();
        match reached {
            Ok(()) => self.store_outage.record_answer(now),
            Err(error) => self.store_outage.record_failure(error, now),
        }
    }

    /// Waits for the next start or end of an outage of the store.
    pub(crate) async fn next_outage_change(&self) -> StoreOutageChange {
        self.store_outage.next_change().await
    }

    /// Returns the shares of limits that decisions have found.
    pub(crate) fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Logs a request for a rule set that does not exist. Returns `false` if the sampler
    /// left the line out.
    pub(crate) fn log_missing_rule_set(&self, name: &str) -> bool {
        let passes = self.missing_rule_sets.allows(self.started.elapsed());
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
    pub(crate) fn record_llm_call(&self, end: CallEnd, prompt: u64, completion: u64) {
        self.metrics.llm.count(end, prompt, completion);
    }

    /// Records that a call of the admin API was refused.
    pub(crate) fn record_admin_denial(&self, denial: AdminDenial) {
        self.metrics.admin.count(denial);
    }

    /// Returns whether to log that a request could not be forwarded.
    pub(crate) fn should_log_unforwarded(&self) -> bool {
        self.unforwarded.allows(self.started.elapsed())
    }

    /// Counts a TLS handshake that failed. Returns whether to log it.
    pub(crate) fn record_tls_failure(&self, listener: Listener) -> bool {
        let shards = &self.metrics.shards;
        shards.count(|shard| shard.tls_failures[listener as usize].add(1));
        self.tls_failures.allows(self.started.elapsed())
    }

    /// Counts a connection without a valid header of the PROXY protocol. Returns whether to log it.
    pub(crate) fn record_proxy_failure(&self) -> bool {
        let failures = &self.metrics.proxy_failures;
        failures.fetch_add(1, Ordering::Relaxed);
        self.proxy_failures.allows(self.started.elapsed())
    }

    /// Records that a request starts to wait.
    pub(crate) fn record_wait_start(&self) {
        self.metrics.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a request stops waiting.
    pub(crate) fn record_wait_end(&self) {
        self.metrics.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records a reload, and whether the part was valid.
    pub(crate) fn record_reload(&self, part: ReloadedPart, is_valid: bool) {
        self.metrics
            .record_reload(part, is_valid, clock::unix_time());
    }

    /// Returns all metrics in Prometheus' text format.
    pub(crate) fn prometheus_text(&self, sources: &MetricSources) -> String {
        self.render(sources, metrics::prometheus_text)
    }

    /// Returns all metrics as a request to an OTLP collector.
    pub(crate) fn otlp_request(&self, sources: &MetricSources) -> String {
        self.render(sources, metrics::otlp_request)
    }

    fn render(
        &self,
        sources: &MetricSources,
        render: fn(&Metrics, &MetricSources, &OwnSources<'_>) -> String,
    ) -> String {
        // The memory store is this process's own.
        let is_shared = sources.store.memory_keys.is_none();
        let own = OwnSources {
            holds: &self.holds.count(is_shared, self.started.elapsed()),
            overflows: self.thresholds.overflows(),
        };
        render(&self.metrics, sources, &own)
    }

    /// Returns whether requests to the gateway are traced, or counted for a collector.
    pub(crate) fn observes_requests(&self) -> bool {
        self.spans.is_some()
    }

    /// Begins the span of a request to the gateway, if its sender traces it.
    pub(crate) fn begin_trace(&self, traceparent: Option<&str>) -> Option<RequestTrace> {
        self.spans.as_ref()?.begin_request(traceparent)
    }

    /// Records a request to the gateway that has ended, for the collector.
    pub(crate) fn record_request(&self, request: &EndedRequest<'_>) {
        if let Some(spans) = &self.spans {
            spans.add_request(request);
        }
        if self.exports_metrics {
            let shards = &self.metrics.shards;
            shards.count(|shard| lock(&shard.http).count(request));
        }
    }

    /// Opens the access log. Dropping the writer writes the lines that are left.
    pub(crate) fn open_access_log(
        &self,
        config: &config::AccessLog,
        identities: Arc<Identities>,
    ) -> Result<(AccessLog, AccessLogWriter), AccessLogError> {
        let lost = Arc::clone(&self.metrics.access_log_lost);
        AccessLog::open(&config.file, config.sample, identities, lost)
    }

    /// Returns a reader of the live view that starts now.
    pub(crate) fn live_reader(&self) -> LiveReader {
        LiveReader::new(&self.metrics)
    }

    /// Returns the counts since the last reading. `is_shared` says whether other processes use
    /// the store.
    pub(crate) fn read_live(&self, reader: &mut LiveReader, is_shared: bool) -> LiveSecond {
        let uptime = self.started.elapsed();
        let holds = self.holds.count(is_shared, uptime);
        reader.read(&self.metrics, &holds, uptime)
    }
}
