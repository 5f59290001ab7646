//! Reports shares of limits that identities have reached.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::store::Subject;
use fluxgate_redis::{BackOff, EventLog, ShareReport, ShareState};
use tokio_util::sync::CancellationToken;

use super::event::{Happening, Share, Threshold};
use super::journal::Journal;
use super::told_shares::ToldShares;
use crate::engine::Engine;
use crate::telemetry::{self, DIP, FoundShare, FoundState};

/// How many shares are reported in one call.
const BATCH: usize = 256;
/// The longest wait before a call that failed is made again.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Reports the shares that decisions of this instance have found.
#[derive(Debug)]
pub(super) struct ThresholdReporter {
    /// The id of this instance, which makes tokens of reports unique.
    instance: String,
    /// The shares that were reported, if there is no Redis.
    told: Mutex<ToldShares>,
}

impl ThresholdReporter {
    pub(super) fn new(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            told: Mutex::default(),
        }
    }

    /// Reports shares until the service closes, and then those that are left, once.
    pub(super) async fn run(
        &self,
        engine: &Engine,
        journal: &Journal,
        closing: &CancellationToken,
    ) {
        let thresholds = engine.telemetry().thresholds();
        let (mut due, mut number) = (Vec::new(), 0);
        loop {
            let is_last = closing.is_cancelled();
            let mut now = engine.telemetry().since_start(telemetry::now());
            if is_last {
                // What waits because it was seen shortly before is due.
                now += DIP;
            }
            let next = thresholds.take(now, BATCH, &mut due);
            if !due.is_empty() {
                number += 1;
                let batch = std::mem::take(&mut due);
                self.report(engine, journal, &batch, number, closing).await;
                continue;
            }
            if is_last {
                return;
            }
            let until_next = next.map(|next| next.saturating_sub(now));
            tokio::select! {
                () = thresholds.wait() => {}
                () = tokio::time::sleep(until_next.unwrap_or(Duration::MAX)), if until_next.is_some() => {}
                () = closing.cancelled() => {}
            }
        }
    }

    async fn report(
        &self,
        engine: &Engine,
        journal: &Journal,
        batch: &[FoundShare],
        number: u64,
        closing: &CancellationToken,
    ) {
        let events: Vec<_> = batch.iter().map(|found| event_of(engine, found)).collect();
        let Some(shared) = journal.shared() else {
            return self.report_here(engine, journal, batch, events);
        };
        let names: Vec<_> = batch.iter().map(FoundShare::name).collect();
        let tokens = (0..batch.len()).map(|index| format!("{}.{number}.{index}", self.instance));
        let tokens: Vec<_> = tokens.collect();
        let reports: Vec<_> = { batch.iter().zip(&names).zip(tokens.iter().zip(&events)) }
            .map(|((found, share), (token, event))| ShareReport {
                subject: subject_of(found),
                share,
                state: state_of(found.state),
                at: found.at,
                reset_after: found.reset_after,
                token,
                event,
            })
            .collect();
        let mut back_off = BackOff::up_to(LONGEST_WAIT);
        // Failures show up in the breaker state. Decisions of the fallback report no shares, so
        // the queue does not grow meanwhile.
        while shared.report_shares(&reports).await.is_err() {
            if closing.is_cancelled() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(back_off.next_wait()) => {}
                () = closing.cancelled() => {}
            }
        }
        journal.refresh();
    }

    fn report_here(
        &self,
        engine: &Engine,
        journal: &Journal,
        batch: &[FoundShare],
        events: Vec<String>,
    ) {
        let now = engine.telemetry().since_start(telemetry::now());
        for (found, event) in batch.iter().zip(events) {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let tells = told.tells(found, now);
            drop(told);
            if tells {
                journal.append(event, None);
            }
        }
    }

    /// Forgets what was reported about an identity where its use has fallen. Waits for it: the next
    /// request must find it forgotten.
    pub(super) async fn forget(&self, engine: &Engine, journal: &Journal, fallen: &[FoundShare]) {
        match journal.shared() {
            Some(shared) => forget_in(shared, fallen).await,
            None => self.report_here(engine, journal, fallen, vec![String::new(); fallen.len()]),
        }
    }

    /// Forgets what was reported about all identities of a rule.
    pub(super) async fn forget_rule(&self, journal: &Journal, rule: Subject<'_>) {
        match journal.shared() {
            // If it fails, what was told is forgotten when the bands would be full.
            Some(shared) => drop(shared.forget_shares_of_rule(rule).await),
            None => {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                told.forget_rule(rule.bytes);
            }
        }
    }
}

async fn forget_in(shared: &EventLog, fallen: &[FoundShare]) {
    let names: Vec<_> = fallen.iter().map(FoundShare::name).collect();
    let reports: Vec<_> = { fallen.iter().zip(&names) }
        .map(|(found, share)| ShareReport {
            subject: subject_of(found),
            share,
            state: ShareState::Below,
            at: found.at,
            reset_after: found.reset_after,
            token: "",
            event: "",
        })
        .collect();
    // If it fails, the share is forgotten when the band would be full.
    let _ = shared.report_shares(&reports).await;
}

fn subject_of(found: &FoundShare) -> Subject<'_> {
    Subject {
        rule: found.rule_number,
        bytes: &found.subject,
    }
}

fn state_of(state: FoundState) -> ShareState {
    match state {
        FoundState::Reached { gap } => ShareState::Reached { gap },
        FoundState::Above => ShareState::Above,
        FoundState::Below => ShareState::Below,
    }
}

/// Returns the event of a share; empty if there is none.
fn event_of(engine: &Engine, found: &FoundShare) -> String {
    if found.state == FoundState::Below {
        return String::new();
    }
    let (identity, handle) = shown_identity(engine, found);
    let threshold = Happening::Threshold(Threshold {
        rule_set: found.rule_set.clone(),
        rule: found.rule.clone(),
        band: found.band.clone(),
        identity,
        handle,
        share: Share(found.share),
        limit: found.limit,
        reset_after_ms: found.reset_after.ceil_millis(),
    });
    threshold.to_json(Duration::from_micros(found.at.micros()))
}

/// Returns an identity as logs show it, and its handle.
fn shown_identity(engine: &Engine, found: &FoundShare) -> (String, Option<String>) {
    let (identities, rule_set, rule) = (engine.identities(), &found.rule_set, &found.rule);
    let stored = identities.stored(rule_set, rule, found.identity());
    let handle = identities.handle(rule_set, rule, &stored);
    (identities.show(&stored), handle)
}
