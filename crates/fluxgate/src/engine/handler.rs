//! The engine as the handler of filters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::store::{Mode, WaitPermit};
use fluxgate_core::task::poll_once_or_spawn;
use fluxgate_core::{Charge, Decision, PendingDecision, RequestContext};
use fluxgate_http::server::Origin;
use fluxgate_http::{Handler, HeaderNames, RequestHold};

use super::Engine;
use crate::telemetry::{self, Timing};

/// Decides one request for one filter.
#[derive(Debug)]
pub(crate) struct EngineHandler<'a> {
    engine: &'a Arc<Engine>,
    origin: &'a Origin<'a>,
    /// How long deciding took, in nanoseconds, without waiting.
    took: AtomicU64,
    /// When it last ended, in nanoseconds since the start of the service.
    ended: AtomicU64,
}

impl<'a> EngineHandler<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, origin: &'a Origin<'a>) -> Self {
        Self {
            engine,
            origin,
            took: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    fn add_elapsed(&self, started: quanta::Instant) {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let now = telemetry::now();
        let took = nanos(now.saturating_duration_since(started));
        self.took.fetch_add(took, Ordering::Relaxed);
        let ended = nanos(self.engine.telemetry.since_start(now));
        self.ended.store(ended, Ordering::Relaxed);
    }
}

impl Handler for EngineHandler<'_> {
    type Report = Decision;
    /// `None` if there is no rule set of that name.
    type Rules = Option<ActiveRuleSet>;
    type Charge = Charge;
    type Pending = PendingDecision;

    fn rules(&self, rule_set: &str) -> Self::Rules {
        Handler::rules(&self.engine.limiter, rule_set)
    }

    fn header_names<'r>(&'r self, rules: &'r Self::Rules) -> HeaderNames<'r> {
        self.engine.limiter.header_names(rules)
    }

    fn may_wait(&self, rules: &Self::Rules) -> bool {
        self.engine.limiter.may_wait(rules)
    }

    fn checked_header_names<'r>(&'r self, rules: &'r Self::Rules) -> &'r [Box<str>] {
        self.engine.limiter.checked_header_names(rules)
    }

    fn try_decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        let started = telemetry::now();
        let decision = self
            .engine
            .limiter
            .try_decide(rule_set, rules, context, mode);
        self.add_elapsed(started);
        decision
    }

    async fn decide(
        &self,
        _: &str,
        _: &Self::Rules,
        _: &RequestContext<'_>,
        pending: PendingDecision,
    ) -> (Decision, WaitPermit) {
        let started = telemetry::now();
        let decision = self.engine.limiter.complete(pending).await;
        self.add_elapsed(started);
        decision
    }

    fn charge(&self, _: &str, context: &RequestContext<'_>, decision: &Decision) -> Option<Charge> {
        decision.charge(context)
    }

    fn cancel(&self, charge: Charge) {
        let engine = Arc::clone(self.engine);
        poll_once_or_spawn(async move {
            // Without a refund, the state expires on its own.
            if let Err(error) = engine.limiter.cancel(charge).await {
                engine.telemetry.record_store_failure(&error, None);
            }
        });
    }

    fn hold(&self, decision: &Decision) -> Option<RequestHold> {
        Handler::hold(&self.engine.limiter, decision)
    }

    async fn begin_wait(&self, longest: Duration) -> Option<WaitPermit> {
        Handler::begin_wait(&self.engine.limiter, longest).await
    }

    fn record(&self, context: &RequestContext<'_>, decision: &Decision) {
        let load = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        let timing = Timing {
            ended: load(&self.ended),
            took: load(&self.took),
        };
        let telemetry = self.engine.telemetry();
        telemetry.record_timed_decision(context, decision, timing, self.origin);
    }

    fn wait_began(&self) {
        self.engine.telemetry.record_wait_start();
    }

    fn wait_ended(&self) {
        self.engine.telemetry.record_wait_end();
    }
}
