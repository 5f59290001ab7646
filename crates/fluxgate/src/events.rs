//! What happened in the fleet: shares of limits that identities have reached, changed rules, a store
//! or an upstream that failed, and wrong tokens.
//!
//! All instances that share a Redis share one log of events ([`journal`]). Viewers follow it, and
//! webhooks ([`webhook`]) get each event once or more. Nothing of it is on the path of a decision:
//! what decisions find waits in a queue of the telemetry, and [`thresholds`] reports it.

mod event;
mod journal;
mod thresholds;
mod told_shares;
mod viewer;
mod webhook;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::store::{Micros, Reason, Subject};
use fluxgate_core::{IdentityRef, Percent, RuleChange, StoreError};
use fluxgate_redis::{etag_of, reason};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use event::{
    Happening, RulesAction, RulesChange, SettingsChange, StoreChange, StoreState, UpstreamChange,
    UpstreamState, WrongTokens, json_with_id,
};
pub(crate) use viewer::EventViewer;
pub(crate) use webhook::Receiver;

use crate::config::{Config, EventKind, Secrets};
use crate::engine::Engine;
use crate::failure::{Exit, Failure};
use crate::telemetry::{
    EventGauges, FoundShare, FoundState, StoreOutageChange, WebhookGauges, unix_time,
};
use event::with_id;
use journal::Journal;
use thresholds::ThresholdReporter;
use webhook::WebhookSender;

/// How many events `GET /v1/events` returns.
pub(crate) const MAX_LISTED: usize = 1_000;
/// How many changes of rules the text of an event names.
const MAX_CHANGES: usize = 5;

/// The events of the fleet.
#[derive(Debug)]
pub(crate) struct Events {
    engine: Arc<Engine>,
    instance: String,
    hostname: String,
    started: Instant,
    journal: Journal,
    thresholds: ThresholdReporter,
    webhooks: Vec<Arc<WebhookSender>>,
    /// Whether the store refuses to log events, which was logged.
    is_refused: AtomicBool,
}

/// The shares of an identity that is about to be reset.
#[derive(Debug)]
#[must_use = "they are forgotten after the reset"]
pub(crate) struct ResetShares(Vec<(FoundShare, u64)>);

impl Events {
    /// Creates the events of an instance, which has this id and runs on this host.
    pub(crate) fn new(
        engine: Arc<Engine>,
        config: &Config,
        secrets: &Secrets,
        instance: &str,
        hostname: &str,
    ) -> Result<Arc<Self>, Failure> {
        let shared = engine.store().redis().map(|store| store.event_log());
        let webhooks = config.webhooks.iter().zip(&secrets.webhooks).enumerate();
        let webhooks = webhooks.map(|(index, (webhook, (secret, ca)))| {
            let receiver = Receiver::new(webhook, secret.clone(), ca.as_ref());
            let receiver = receiver.map_err(|error| {
                Failure::new(Exit::Config, format!("`webhooks[{index}].url`: {error}"))
            })?;
            Ok(Arc::new(WebhookSender::new(webhook, receiver, instance)))
        });
        Ok(Arc::new(Self {
            journal: Journal::new(shared, instance),
            thresholds: ThresholdReporter::new(instance),
            webhooks: webhooks.collect::<Result<_, Failure>>()?,
            instance: instance.to_owned(),
            hostname: hostname.to_owned(),
            started: Instant::now(),
            is_refused: AtomicBool::new(false),
            engine,
        }))
    }

    /// Returns the engine whose events these are.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Records, follows and sends events until the service closes.
    pub(crate) async fn run(self: Arc<Self>, closing: CancellationToken) {
        let mut senders = JoinSet::new();
        for webhook in &self.webhooks {
            let (events, webhook) = (Arc::clone(&self), Arc::clone(webhook));
            let closing = closing.clone();
            senders.spawn(async move {
                let started = events.started;
                webhook.run(&events.journal, started, &closing).await;
            });
        }
        let following = async {
            tokio::select! {
                () = self.journal.follow(|reached| self.note_store(reached)) => {}
                () = self.follow_outages() => {}
                () = closing.cancelled() => {}
            }
        };
        tokio::join!(
            following,
            self.thresholds.run(&self.engine, &self.journal, &closing)
        );
        self.journal.flush_outgoing().await;
        while senders.join_next().await.is_some() {}
    }

    /// Records an event of this instance.
    pub(crate) fn record(&self, happening: &Happening) {
        let text = happening.to_json(unix_time());
        if happening.kind() == EventKind::Store {
            // The log is in the store that has failed.
            for webhook in &self.webhooks {
                webhook.add_own(EventKind::Store, &text);
            }
        }
        self.journal.append(text, None);
    }

    /// Records an event that all instances notice: if the last one of the topic had another value.
    pub(crate) fn record_once(&self, topic: &str, value: &str, happening: &Happening) {
        let text = happening.to_json(unix_time());
        let topic = (topic.to_owned(), value.to_owned());
        self.journal.append(text, Some(topic));
    }

    /// Records that an upstream of the gateway is out, or back.
    pub(crate) fn record_upstream(
        &self,
        state: UpstreamState,
        route: &str,
        upstream: &str,
        reason: Option<String>,
    ) {
        self.record(&Happening::Upstream(UpstreamChange {
            state,
            route: route.to_owned(),
            upstream: upstream.to_owned(),
            reason,
            instance: self.instance.clone(),
        }));
    }

    /// Records that an address has sent too many wrong tokens.
    pub(crate) fn record_wrong_tokens(&self, address: String) {
        let instance = self.instance.clone();
        self.record(&Happening::Login(WrongTokens { address, instance }));
    }

    /// Records rules that this instance has taken over from their source. All instances do, and
    /// one of them tells it.
    pub(crate) fn record_new_rules(&self, changes: &[RuleChange], revision: &str) {
        let rule_set = only_set(changes);
        let of_set = rule_set.iter().map(|set| format!(":{set}"));
        let topic = format!("rules{}", of_set.collect::<String>());
        self.record_once(
            &topic,
            revision,
            &Happening::Rules(RulesChange {
                action: RulesAction::Applied,
                rule_set,
                who: None,
                revision: Some(revision.to_owned()),
                details: list_of(changes),
            }),
        );
    }

    /// Records settings that this instance has taken over from its config file. Where all instances
    /// have the same file, one of them tells it.
    pub(crate) fn record_new_settings(&self, changes: &[String], settings: &str) {
        let mut details = changes
            .iter()
            .take(MAX_CHANGES)
            .cloned()
            .collect::<Vec<_>>();
        let more = changes.len().saturating_sub(MAX_CHANGES);
        if more > 0 {
            details.push(format!("{more} more"));
        }
        let change = SettingsChange {
            action: RulesAction::Applied,
            details: shortened(details.join(", ")),
        };
        let revision = etag_of(settings);
        self.record_once("settings", &revision, &Happening::Settings(change));
    }

    /// Records that new rules of the source were refused, and why. All instances do, and one of
    /// them tells it.
    pub(crate) fn record_refused_rules(&self, faults: &[String]) {
        let details = list_of_faults(faults);
        let revision = self.engine.revision();
        // The same faults are news again once other rules are active.
        let value = format!("{revision} {details}");
        self.record_once(
            "refused",
            &value,
            &Happening::Rules(RulesChange {
                action: RulesAction::Refused,
                rule_set: None,
                who: None,
                revision: Some(revision),
                details,
            }),
        );
    }

    /// Records a change that came through the API of this instance.
    pub(crate) fn record_rule_change(
        &self,
        action: RulesAction,
        rule_set: &str,
        who: &str,
        details: String,
    ) {
        let revision = Some(self.engine.revision()).filter(|it| !it.is_empty());
        self.record(&Happening::Rules(RulesChange {
            action,
            rule_set: Some(shortened(rule_set.to_owned())),
            who: Some(who.to_owned()),
            revision,
            details: shortened(details),
        }));
    }

    /// Notes whether the store answers, if no decision does. A server that refuses commands of the
    /// log may still decide: it is full, or the user lacks a permission.
    fn note_store(&self, reached: Result<(), &StoreError>) {
        const OUTAGES: [Reason; 4] = [
            Reason::TIMEOUT,
            reason::REDIS_ERROR,
            reason::CIRCUIT_OPEN,
            reason::CLUSTER_DOWN,
        ];
        if let Some(error) = reached.err().filter(|it| !OUTAGES.contains(&it.reason)) {
            if !self.is_refused.swap(true, Ordering::Relaxed) {
                let reason = error.reason.name();
                tracing::warn!(reason, %error, "events cannot be logged in the store");
            }
            return;
        }
        if reached.is_ok() {
            self.is_refused.store(false, Ordering::Relaxed);
        }
        self.engine.telemetry().note_store(reached);
    }

    /// Records outages of the store, and their ends. Never returns.
    async fn follow_outages(&self) {
        loop {
            let change = self.engine.telemetry().next_outage_change().await;
            let (state, reason, failed_for) = match change {
                StoreOutageChange::Failed(reason) => (StoreState::Failed, Some(reason), None),
                StoreOutageChange::Back { failed_for } => {
                    (StoreState::Back, None, Some(failed_for))
                }
            };
            self.record(&Happening::Store(StoreChange {
                state,
                reason,
                failed_for_ms: failed_for.map(|span: Duration| span.as_millis() as u64),
                instance: self.instance.clone(),
                hostname: self.hostname.clone(),
            }));
        }
    }

    /// Forgets the reported shares that the use of an identity has fallen below, because it was
    /// refunded units. Waits for it: the next request must find them forgotten.
    pub(crate) async fn forget_refunded(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
    ) {
        let Some(mut shares) = self.shares_of(rule_set, rule, identity).await else {
            return;
        };
        shares.retain(|(share, used)| *used < share.share.reached_at(share.limit));
        self.forget(shares).await;
    }

    /// Returns the shares of an identity that is about to be reset, to be
    /// [forgotten](Self::forget) afterwards. What is reached from now on is not forgotten.
    pub(crate) async fn shares_before_reset(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
    ) -> ResetShares {
        let shares = self.shares_of(rule_set, rule, identity).await;
        ResetShares(shares.unwrap_or_default())
    }

    /// Forgets the shares of an identity that was reset.
    pub(crate) async fn forget_reset(&self, ResetShares(shares): ResetShares) {
        self.forget(shares).await;
    }

    /// Forgets what was reported about all identities of a rule that was reset, or of all rules of
    /// a set.
    pub(crate) async fn forget_rules(&self, rule_set: &str, rule: Option<&str>) {
        let rules = self.engine.limiter().rules();
        let all = rules
            .get(rule_set)
            .map(|set| set.rules())
            .unwrap_or_default();
        for known in all.iter().filter(|it| rule.is_none_or(|id| id == it.id())) {
            if !known.notify().is_empty() {
                let reporter = &self.thresholds;
                reporter.forget_rule(&self.journal, known.subject()).await;
                self.engine.telemetry().thresholds().forget_all();
            }
        }
    }

    async fn forget(&self, shares: Vec<(FoundShare, u64)>) {
        let shares: Vec<_> = shares.into_iter().map(|(share, _)| share).collect();
        if !shares.is_empty() {
            let reporter = &self.thresholds;
            reporter.forget(&self.engine, &self.journal, &shares).await;
            self.engine.telemetry().thresholds().forget(&shares);
        }
    }

    /// Returns the shares of an identity that its rule notifies of, with the units in use. The
    /// time is before the use was read.
    async fn shares_of(
        &self,
        rule_set: &str,
        rule: &str,
        identity: IdentityRef<'_>,
    ) -> Option<Vec<(FoundShare, u64)>> {
        let limiter = self.engine.limiter();
        let rules = limiter.rules();
        let set = rules.get(rule_set)?;
        let active = set.rule(rule).filter(|rule| !rule.notify().is_empty())?;
        let encoded = match identity {
            IdentityRef::Values(values) => set.identity_of_values(active, values)?.to_vec(),
            IdentityRef::Stored(stored) => stored.as_bytes().to_vec(),
            _ => return None,
        };
        let head = active.subject().bytes;
        let subject: Box<[u8]> = [head, &encoded].concat().into();
        let at = match self.journal.shared() {
            Some(shared) => {
                let rule = active.number();
                let bytes = &*subject;
                shared.time_at(Subject { rule, bytes }).await.ok()?
            }
            None => self.engine.store_time(),
        };
        let states = limiter.state_of(rule_set, rule, identity).await.ok()?;
        let shares = states.iter().flat_map(|state| {
            let limit = state.band.capacity();
            let used = limit.saturating_sub(state.remaining);
            let shares = active.notify().iter().filter(|_| state.band.notifies());
            let share_of = |share: &Percent| FoundShare {
                rule_set: rule_set.into(),
                rule: rule.into(),
                rule_number: active.number(),
                subject: subject.clone(),
                identity_at: head.len(),
                band: state.band.id().into(),
                band_tag: state.band.tag(),
                share: *share,
                limit,
                state: FoundState::Below,
                at,
                reset_after: Micros::ZERO,
            };
            shares
                .map(move |share| (share_of(share), used))
                .collect::<Vec<_>>()
        });
        Some(shares.collect())
    }

    /// Returns the last events as JSON, the oldest first.
    pub(crate) fn list(&self, most: usize) -> Vec<String> {
        let (events, outgoing) = self.journal.last(most);
        let outgoing = outgoing.iter().map(|text| json_with_id(None, text));
        let mut events: Vec<_> = events.iter().map(with_id).chain(outgoing).collect();
        events.split_off(events.len().saturating_sub(most))
    }

    /// Returns what the metrics show.
    pub(crate) fn gauges(&self) -> EventGauges {
        let webhooks = self.webhooks.iter().map(|webhook| {
            let counts = webhook.counts();
            WebhookGauges {
                server: webhook.server().to_owned(),
                queued: webhook.queued(&self.journal) as u64,
                sent: counts.sent.load(Ordering::Relaxed),
                failures: counts.failures.load(Ordering::Relaxed),
                lost: counts.lost.load(Ordering::Relaxed),
                is_failing: webhook.is_failing(),
            }
        });
        EventGauges {
            lost: self.journal.lost(),
            webhooks: webhooks.collect(),
        }
    }
}

/// Returns the rule set of the changes, if there is one only.
fn only_set(changes: &[RuleChange]) -> Option<String> {
    let first = &changes.first()?.rule_set;
    let is_only = changes.iter().all(|change| change.rule_set == *first);
    is_only.then(|| first.clone())
}

/// Returns the changed rules, and what has become of them. The values of fields are left out: they
/// may name identities.
pub(crate) fn list_of(changes: &[RuleChange]) -> String {
    use fluxgate_core::RuleChangeKind;
    let named = changes.iter().take(MAX_CHANGES).map(|change| {
        let rule = change.rule.iter().map(|rule| format!("/{rule}"));
        let place = format!("{}{}", change.rule_set, rule.collect::<String>());
        match &change.kind {
            RuleChangeKind::Added => format!("{place} added"),
            RuleChangeKind::Removed => format!("{place} removed"),
            RuleChangeKind::Changed(fields) => {
                let fields: Vec<_> = fields.iter().map(|field| field.field.as_str()).collect();
                format!("{place} changed ({})", fields.join(", "))
            }
            _ => format!("{place} reordered"),
        }
    });
    let mut named: Vec<_> = named.collect();
    if changes.len() > MAX_CHANGES {
        named.push(format!("{} more changes", changes.len() - MAX_CHANGES));
    }
    named.join("; ")
}

/// Returns the first faults of new rules.
pub(crate) fn list_of_faults(faults: &[impl fmt::Display]) -> String {
    let named = faults.iter().take(MAX_CHANGES).map(ToString::to_string);
    let mut named: Vec<_> = named.collect();
    if faults.len() > MAX_CHANGES {
        named.push(format!("{} more faults", faults.len() - MAX_CHANGES));
    }
    shortened(named.join("; "))
}

/// Returns the beginning of a text that a caller or a source has chosen.
fn shortened(mut text: String) -> String {
    const MOST: usize = 1_000;
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push('…');
    }
    text
}
