//! Sends events to one webhook, in order, until each has been accepted.
//!
//! One instance sends the events of the shared log: the one that holds the queue of the webhook,
//! where the last event that was accepted is kept. If it ends or dies, another takes over there,
//! so an event may arrive twice, but none is left out. An event that has not been accepted within
//! an hour is given up, and counted.
//!
//! An instance sends its own `store` events itself, before others: the shared log is in the store
//! that has failed.

mod delivery;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_redis::{EventId, EventLog, LoggedEvent};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use delivery::Receiver;

use delivery::{DeliveryError, Post};

use super::event::{json_with_id, kind_of, with_id};
use super::journal::{Journal, Position};
use crate::config::{EventKind, Webhook};

/// How long an event is sent again until it is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3600);
/// How long a claim of a queue lasts, and how often it is extended. If its holder dies, another
/// instance takes over after that time.
const CLAIM: Duration = Duration::from_secs(3);
const CLAIM_INTERVAL: Duration = Duration::from_millis(800);
/// How many `store` events of this instance wait.
const MAX_OWN: usize = 1_000;
/// How many events are read at once.
const PAGE: usize = 100;
/// The first and the longest wait before an event is sent again.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Sends events to one webhook.
#[derive(Debug)]
pub(super) struct WebhookSender<R = Receiver> {
    receiver: R,
    kinds: Vec<EventKind>,
    /// Names the webhook in metrics and logs, without its path.
    server: String,
    /// Names its queue in the store.
    queue: String,
    /// The id of this instance.
    instance: String,
    own: Mutex<VecDeque<OwnEvent>>,
    has_own: Notify,
    state: Mutex<QueueState>,
    counts: DeliveryCounts,
    /// Whether the last attempt failed, which was logged.
    is_failing: AtomicBool,
}

/// What has become of events.
#[derive(Debug, Default)]
pub(super) struct DeliveryCounts {
    pub(super) sent: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) lost: AtomicU64,
}

/// An event that only this instance sends.
#[derive(Debug)]
struct OwnEvent {
    text: Arc<str>,
    since: Instant,
}

/// Where this instance is in the queue.
#[derive(Clone, Copy, Debug, Default)]
struct QueueState {
    /// `None` while another instance sends.
    position: Option<Position>,
    /// How many of the events that this process has seen are done.
    done: u64,
}

/// What has become of an attempt to deliver an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was accepted or given up.
    Done,
    /// Another instance sends now, or the service closes.
    Interrupted,
}

/// What sending needs: the log, the claim of the queue, the start of the service, and its end.
type SendContext<'s> = (&'s Journal, &'s mut Claim, Instant, &'s CancellationToken);

/// The claim of a queue by this instance.
#[derive(Debug)]
struct Claim {
    /// When it ends if it is not extended; `None` if another instance has the queue.
    until: Option<Instant>,
    next: Instant,
}

impl<R: Post> WebhookSender<R> {
    pub(super) fn new(webhook: &Webhook, receiver: R, instance: &str) -> Self {
        let hash = Sha256::digest(webhook.url.as_str().as_bytes());
        let queue = hash.iter().take(8).map(|byte| format!("{byte:02x}"));
        Self {
            receiver,
            kinds: webhook.kinds.clone(),
            server: webhook.server(),
            queue: queue.collect(),
            instance: instance.to_owned(),
            own: Mutex::default(),
            has_own: Notify::new(),
            state: Mutex::default(),
            counts: DeliveryCounts::default(),
            is_failing: AtomicBool::new(false),
        }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Returns whether the last attempt failed.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> &DeliveryCounts {
        &self.counts
    }

    /// Queues an event that only this instance sends.
    pub(super) fn add_own(&self, kind: EventKind, text: &str) {
        if !self.kinds.contains(&kind) {
            return;
        }
        let mut own = lock(&self.own);
        if own.len() >= MAX_OWN {
            own.pop_front();
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        own.push_back(OwnEvent {
            text: text.into(),
            since: Instant::now(),
        });
        drop(own);
        self.has_own.notify_one();
    }

    /// Returns how many events wait here. Those of the shared log wait at the instance that sends
    /// them.
    pub(super) fn queued(&self, journal: &Journal) -> usize {
        let position = lock(&self.state).position;
        let shared = position.map_or(0, |at| journal.count_after(at.after, &self.fleet_kinds()));
        shared + lock(&self.own).len()
    }

    /// Returns the kinds that are sent from the log. With a shared one, `store` events are sent by
    /// the instance that noticed them.
    fn fleet_kinds(&self) -> Vec<EventKind> {
        let kinds = self.kinds.iter().copied();
        kinds.filter(|kind| *kind != EventKind::Store).collect()
    }

    /// Sends events until the service closes.
    pub(super) async fn run(
        self: Arc<Self>,
        journal: &Journal,
        started: Instant,
        closing: &CancellationToken,
    ) {
        let _following = journal.follow_closely();
        let mut changes = journal.subscribe();
        let mut claim = Claim {
            until: None,
            next: Instant::now(),
        };
        if journal.shared().is_none() {
            // What happened before the start is not in the log of this process.
            self.begin(journal.after(EventId::default()), 0);
        }
        let mut page = VecDeque::new();
        while !closing.is_cancelled() {
            changes.mark_unchanged();
            if self.send_own(journal, &mut claim, started, closing).await {
                continue;
            }
            if !self.keep_claim(journal, &mut claim, started).await {
                page.clear();
            } else if let Some(event) = self.next_event(journal, &mut page).await {
                let context = (journal, &mut claim, started, closing);
                let is_last = page.is_empty();
                if self.send_logged(&event, is_last, context).await == Outcome::Interrupted {
                    page.clear();
                }
                continue;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = self.has_own.notified() => {}
                () = tokio::time::sleep_until(claim.next), if journal.shared().is_some() => {}
                () = closing.cancelled() => {}
            }
        }
        if let Some(shared) = journal.shared().filter(|_| claim.until.is_some()) {
            // If it fails, the claim ends by itself.
            let _ = shared.release_queue(&self.queue, &self.instance).await;
        }
    }

    /// Sends the first of the events that only this instance sends, if there is one.
    async fn send_own(
        &self,
        journal: &Journal,
        claim: &mut Claim,
        started: Instant,
        closing: &CancellationToken,
    ) -> bool {
        let first = lock(&self.own)
            .front()
            .map(|own| (Arc::clone(&own.text), own.since));
        let Some((text, since)) = first else {
            return false;
        };
        let body = json_with_id(None, &text);
        let context = (journal, &mut *claim, started, closing);
        let is_old = || since.elapsed() >= GIVE_UP_AFTER;
        if self.deliver(&body, false, is_old, context).await == Outcome::Done {
            let mut own = lock(&self.own);
            // Others may have taken its place meanwhile.
            if own.front().is_some_and(|it| Arc::ptr_eq(&it.text, &text)) {
                own.pop_front();
            }
        }
        true
    }

    /// Sends an event of the log if its kind is wanted, and records that. `is_last` says whether no
    /// other event is known.
    async fn send_logged(
        &self,
        event: &LoggedEvent,
        is_last: bool,
        (journal, claim, started, closing): SendContext<'_>,
    ) -> Outcome {
        let kinds = self.fleet_kinds();
        let is_wanted = kind_of(&event.text).is_some_and(|kind| kinds.contains(&kind));
        if is_wanted && self.is_full(journal) {
            self.give_up("too many events wait for the webhook; the oldest is given up");
        } else if is_wanted {
            let at = Duration::from_millis(event.id.ms);
            let is_old = || {
                let age = self.receiver.unix_time().saturating_sub(at);
                age >= GIVE_UP_AFTER || self.is_full(journal)
            };
            let context = (journal, &mut *claim, started, closing);
            let body = with_id(event);
            if self.deliver(&body, true, is_old, context).await == Outcome::Interrupted {
                return Outcome::Interrupted;
            }
        } else if !is_last {
            // Recorded with the next one.
            self.move_to(event.id);
            return Outcome::Done;
        }
        self.advance(journal, event.id, claim).await
    }

    /// Sends an event until it is accepted or too old. `needs_claim` says whether another instance
    /// may take over.
    async fn deliver(
        &self,
        body: &str,
        needs_claim: bool,
        is_old: impl Fn() -> bool,
        (journal, claim, started, closing): SendContext<'_>,
    ) -> Outcome {
        let failing_since = Instant::now();
        loop {
            let now = self.receiver.unix_time();
            let mut posting = std::pin::pin!(self.receiver.post(body, now));
            let posted = loop {
                tokio::select! {
                    posted = &mut posting => break posted,
                    () = tokio::time::sleep_until(claim.next), if journal.shared().is_some() => {
                        // A slow receiver must not cost the claim.
                        self.keep_claim(journal, claim, started).await;
                    }
                    // It is sent again by the next sender.
                    () = closing.cancelled() => return Outcome::Interrupted,
                }
            };
            match posted {
                Ok(_) => {
                    self.record_success();
                    return Outcome::Done;
                }
                Err(error) => self.record_failure(&error),
            }
            if is_old() {
                self.give_up("an event was not accepted in time and is given up");
                return Outcome::Done;
            }
            let retry = Instant::now() + wait_after(failing_since.elapsed());
            while Instant::now() < retry {
                tokio::select! {
                    () = tokio::time::sleep_until(retry) => {}
                    () = tokio::time::sleep_until(claim.next), if journal.shared().is_some() => {
                        self.keep_claim(journal, claim, started).await;
                    }
                    () = closing.cancelled() => return Outcome::Interrupted,
                }
            }
            if needs_claim && !claim.is_held(journal) {
                return Outcome::Interrupted;
            }
        }
    }

    /// Returns the next event of the log.
    async fn next_event(
        &self,
        journal: &Journal,
        page: &mut VecDeque<LoggedEvent>,
    ) -> Option<LoggedEvent> {
        if page.is_empty() {
            let mut position = lock(&self.state).position?;
            // The position moves when an event is accepted.
            let events = journal.next(&mut position, PAGE).await.ok()?;
            page.extend(events);
        }
        page.pop_front()
    }

    /// Claims the queue, or extends the claim, if it is time. Returns whether this instance sends.
    async fn keep_claim(&self, journal: &Journal, claim: &mut Claim, started: Instant) -> bool {
        let Some(shared) = journal.shared() else {
            return true;
        };
        if claim.next <= Instant::now() {
            let asked = Instant::now();
            claim.next = asked + CLAIM_INTERVAL;
            match self.claim(shared, started).await {
                Ok(Some(position)) => {
                    claim.until = Some(asked + CLAIM);
                    if lock(&self.state).position.is_none() {
                        // If Redis does not answer, nothing is known to wait.
                        let unread = journal.len_after(position).await.unwrap_or_default();
                        let done = journal.total().saturating_sub(unread);
                        self.begin(journal.after(position), done);
                    }
                }
                Ok(None) => claim.until = None,
                // It lasts until it ends.
                Err(_) => {}
            }
        }
        let is_held = claim.is_held(journal);
        if !is_held {
            claim.until = None;
            lock(&self.state).position = None;
        }
        is_held
    }

    async fn claim(
        &self,
        shared: &EventLog,
        started: Instant,
    ) -> Result<Option<EventId>, fluxgate_core::StoreError> {
        // A new webhook gets what happens from the start of this instance on.
        let age = started.elapsed();
        shared
            .claim_queue(&self.queue, &self.instance, CLAIM, age)
            .await
    }

    /// Records the last event that was accepted.
    async fn advance(&self, journal: &Journal, sent: EventId, claim: &mut Claim) -> Outcome {
        self.move_to(sent);
        let Some(shared) = journal.shared() else {
            return Outcome::Done;
        };
        let asked = Instant::now();
        let advanced = shared.advance_queue(&self.queue, &self.instance, CLAIM, sent);
        match advanced.await {
            Ok(true) => {
                claim.until = Some(asked + CLAIM);
                claim.next = asked + CLAIM_INTERVAL;
                Outcome::Done
            }
            Ok(false) => {
                claim.until = None;
                lock(&self.state).position = None;
                Outcome::Interrupted
            }
            // The next event records its own position, or another instance sends this one again.
            Err(_) => Outcome::Done,
        }
    }

    /// Begins to send after a position, when so many of the events that were seen are done.
    fn begin(&self, position: Position, done: u64) {
        let mut state = lock(&self.state);
        state.position = Some(position);
        state.done = done;
    }

    /// Moves behind an event.
    fn move_to(&self, id: EventId) {
        let mut state = lock(&self.state);
        state.done += 1;
        if let Some(position) = &mut state.position {
            position.after = id;
        }
    }

    /// Returns whether so many events wait that the log is about to drop the oldest.
    fn is_full(&self, journal: &Journal) -> bool {
        let done = lock(&self.state).done;
        journal.total().saturating_sub(done) > journal.most_unread()
    }

    fn give_up(&self, why: &str) {
        // One line for a series of them.
        if self
            .counts
            .lost
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(1_000)
        {
            tracing::warn!(webhook = self.server, "{why}");
        }
    }

    fn record_success(&self) {
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!(webhook = self.server, "the webhook accepts events again");
        }
    }

    fn record_failure(&self, error: &DeliveryError) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        // Only the first attempt that fails is logged.
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let server = &self.server;
            tracing::warn!(webhook = server, %error, "the webhook does not accept events");
        }
    }
}

impl Claim {
    fn is_held(&self, journal: &Journal) -> bool {
        journal.shared().is_none() || self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Returns the wait before the next attempt: a quarter of the time since the first, so that a
/// receiver that is back soon gets its events soon.
fn wait_after(failing: Duration) -> Duration {
    (failing / 4).clamp(FIRST_WAIT, LONGEST_WAIT)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
