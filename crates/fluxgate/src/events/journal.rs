//! The log of events as this instance sees it.
//!
//! With Redis, all instances share one log. Each follows it, and keeps the last events for its
//! viewers and webhooks. What an instance wants to append waits in a queue, so nothing waits for
//! Redis. While it does not answer, viewers of this instance see what is in its queue, without ids;
//! the others see it when it is appended.
//!
//! Without Redis, the log is what this process keeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_core::StoreError;
use fluxgate_redis::{EventId, EventLog, LoggedEvent, MAX_EVENTS};
use tokio::sync::{Notify, watch};

use super::event::kind_of;
use crate::config::EventKind;
use crate::telemetry::unix_time;

/// How many events this process keeps.
const MAX_KEPT: usize = 10_000;
/// How many events wait to be appended.
const MAX_OUTGOING: usize = 1_000;
/// How many events are read or appended in one call.
const PAGE: usize = 1_000;
/// How often the log is read while somebody waits for events, and otherwise.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// After this many reads without events, the log may have been lost.
const READS_PER_CHECK: u32 = 20;

/// The log of events.
#[derive(Debug)]
pub(super) struct Journal {
    /// The log of all instances; `None` if this process keeps its own.
    shared: Option<EventLog>,
    /// The id of this instance.
    instance: String,
    kept: Mutex<KeptEvents>,
    /// Increased with every change.
    changes: watch::Sender<u64>,
    /// Wakes the task that follows the shared log.
    wake: Notify,
    /// How many wait for events: viewers and webhooks.
    followers: AtomicUsize,
    lost: AtomicU64,
}

/// The last events.
#[derive(Debug, Default)]
struct KeptEvents {
    /// In the order of their ids.
    events: VecDeque<KeptEvent>,
    /// All events after this one are among them.
    complete_after: EventId,
    /// The last event of the log.
    last: EventId,
    /// How many events this process has seen.
    total: u64,
    /// How often the shared log was lost and began anew.
    generation: u64,
    outgoing: VecDeque<OutgoingEvent>,
    /// The number of the next event that is queued.
    next_number: u64,
    /// Whether the shared log cannot be reached.
    is_cut_off: bool,
}

#[derive(Clone, Debug)]
struct KeptEvent {
    event: LoggedEvent,
    /// `None` if a newer release has written it.
    kind: Option<EventKind>,
}

/// An event that is not in the shared log yet.
#[derive(Clone, Debug)]
pub(super) struct OutgoingEvent {
    number: u64,
    pub(super) text: String,
    /// Several instances notice it: a topic, and its value.
    topic: Option<(String, String)>,
}

/// Where a reader of the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) after: EventId,
    generation: u64,
    /// Outgoing events with lower numbers have been read.
    outgoing: u64,
}

/// Reads from the log until it is dropped.
#[derive(Debug)]
pub(super) struct Following<'j>(&'j Journal);

impl Journal {
    pub(super) fn new(shared: Option<EventLog>, instance: &str) -> Self {
        Self {
            shared,
            instance: instance.to_owned(),
            kept: Mutex::default(),
            changes: watch::Sender::new(0),
            wake: Notify::new(),
            followers: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Returns the log of all instances, if there is one.
    pub(super) fn shared(&self) -> Option<&EventLog> {
        self.shared.as_ref()
    }

    /// Appends an event: at once to a log of this process, and otherwise when Redis answers. With
    /// a topic, only if its last value was another one.
    pub(super) fn append(&self, text: String, topic: Option<(String, String)>) {
        let mut kept = self.lock();
        if self.shared.is_none() {
            kept.append(text);
            drop(kept);
            return self.announce();
        }
        if kept.outgoing.len() >= MAX_OUTGOING {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let number = kept.next_number;
        kept.next_number += 1;
        kept.outgoing.push_back(OutgoingEvent {
            number,
            text,
            topic,
        });
        drop(kept);
        self.wake.notify_one();
        self.announce();
    }

    /// Reads the shared log soon, because something was appended to it.
    pub(super) fn refresh(&self) {
        self.wake.notify_one();
    }

    /// Follows the shared log. Never returns, and does nothing without one. `reached` is told
    /// whether Redis answers.
    pub(super) async fn follow(&self, reached: impl Fn(Result<(), &StoreError>)) {
        let Some(shared) = &self.shared else {
            return std::future::pending().await;
        };
        let mut is_started = false;
        let mut reads = 0;
        loop {
            let read = async {
                if !is_started {
                    self.start_from(shared.last(PAGE).await?);
                    is_started = true;
                }
                self.flush(shared).await?;
                let count = self.read(shared).await?;
                reads = if count > 0 { 0 } else { reads + 1 };
                if reads >= READS_PER_CHECK {
                    reads = 0;
                    self.check_for_loss(shared).await?;
                }
                Ok(())
            };
            let outcome: Result<(), StoreError> = read.await;
            reached(outcome.as_ref().copied());
            if self.set_cut_off(outcome.is_err()) {
                self.announce();
            }
            let busy = outcome.is_err() || self.followers.load(Ordering::Relaxed) > 0;
            let interval = if busy { BUSY_INTERVAL } else { IDLE_INTERVAL };
            let woken = self.wake.notified();
            let _ = tokio::time::timeout(interval, woken).await;
            if outcome.is_err() {
                // A flood of events must not become a flood of attempts.
                tokio::time::sleep(BUSY_INTERVAL).await;
            }
        }
    }

    /// Appends what waits, once. For the end of the service.
    pub(super) async fn flush_outgoing(&self) {
        if let Some(shared) = &self.shared {
            // What cannot be appended now is lost.
            let _ = self.flush(shared).await;
        }
    }

    fn start_from(&self, events: Vec<LoggedEvent>) {
        let mut kept = self.lock();
        kept.complete_after = match events.first() {
            Some(first) if events.len() == PAGE => first.id,
            _ => EventId::default(),
        };
        kept.extend(events);
    }

    /// Appends the events that wait.
    async fn flush(&self, shared: &EventLog) -> Result<(), StoreError> {
        loop {
            let first = self.lock().outgoing.front().cloned();
            let Some(event) = first else { return Ok(()) };
            // If a reply is lost, the event is not appended a second time.
            let (topic, value) = event.topic.unwrap_or_else(|| {
                let topic = format!("instance:{}", self.instance);
                (topic, event.number.to_string())
            });
            shared.append_once(&topic, &value, event.text).await?;
            self.lock().outgoing.pop_front();
        }
    }

    /// Reads what others have appended. Returns how many events there are.
    async fn read(&self, shared: &EventLog) -> Result<usize, StoreError> {
        let mut count = 0;
        loop {
            let last = self.lock().last;
            let events = shared.read_after(last, PAGE).await?;
            let (read, is_full) = (events.len(), events.len() == PAGE);
            count += read;
            if read > 0 {
                self.lock().extend(events);
                self.announce();
            }
            if !is_full {
                return Ok(count);
            }
        }
    }

    /// Begins anew if the shared log has only older events than this instance knows: the server has
    /// lost its data.
    async fn check_for_loss(&self, shared: &EventLog) -> Result<(), StoreError> {
        let newest = shared.last(1).await?.first().map(|event| event.id);
        let mut kept = self.lock();
        if newest.unwrap_or_default() < kept.last {
            *kept = KeptEvents {
                generation: kept.generation + 1,
                total: kept.total,
                outgoing: std::mem::take(&mut kept.outgoing),
                next_number: kept.next_number,
                is_cut_off: kept.is_cut_off,
                ..KeptEvents::default()
            };
        }
        Ok(())
    }

    /// Returns whether this has changed.
    fn set_cut_off(&self, is_cut_off: bool) -> bool {
        let mut kept = self.lock();
        std::mem::replace(&mut kept.is_cut_off, is_cut_off) != is_cut_off
    }

    /// Returns the position after all events so far.
    pub(super) fn end(&self) -> Position {
        let kept = self.lock();
        Position {
            after: kept.last,
            generation: kept.generation,
            outgoing: kept.next_number,
        }
    }

    /// Returns the position after an event.
    pub(super) fn after(&self, id: EventId) -> Position {
        Position {
            after: id,
            ..self.end()
        }
    }

    /// Returns the next events after a position, and moves it behind them.
    pub(super) async fn next(
        &self,
        position: &mut Position,
        most: usize,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let kept = self.kept_after(position, most);
        let events = match (kept, &self.shared) {
            (Some(events), _) => events,
            (None, Some(shared)) => shared.read_after(position.after, most).await?,
            // A log of this process has nothing older.
            (None, None) => {
                position.after = self.lock().complete_after;
                self.kept_after(position, most).unwrap_or_default()
            }
        };
        if let Some(last) = events.last() {
            position.after = last.id;
        }
        Ok(events)
    }

    fn kept_after(&self, position: &mut Position, most: usize) -> Option<Vec<LoggedEvent>> {
        let kept = self.lock();
        if position.generation != kept.generation {
            position.generation = kept.generation;
            position.after = EventId::default();
        }
        if position.after < kept.complete_after {
            return None;
        }
        let start = kept.index_after(position.after);
        let events = kept.events.range(start..).take(most);
        Some(events.map(|kept| kept.event.clone()).collect())
    }

    /// Returns the outgoing events after a position, and moves it behind them, while the shared log
    /// cannot be reached.
    pub(super) fn next_outgoing(&self, position: &mut Position) -> Vec<String> {
        let kept = self.lock();
        if !kept.is_cut_off {
            return Vec::new();
        }
        let new = { kept.outgoing.iter() }.filter(|event| event.number >= position.outgoing);
        let texts = new.map(|event| event.text.clone()).collect();
        position.outgoing = kept.next_number;
        texts
    }

    /// Returns the last events, and those that are not in the shared log yet.
    pub(super) fn last(&self, most: usize) -> (Vec<LoggedEvent>, Vec<String>) {
        let kept = self.lock();
        let outgoing: Vec<_> = if kept.is_cut_off {
            let outgoing = kept.outgoing.iter();
            outgoing.map(|event| event.text.clone()).collect()
        } else {
            Vec::new()
        };
        let start = (kept.events.len() + outgoing.len()).saturating_sub(most);
        let events = kept.events.iter().skip(start);
        let events = events.map(|kept| kept.event.clone()).collect();
        (events, outgoing)
    }

    /// Returns how many events this process has seen.
    pub(super) fn total(&self) -> u64 {
        self.lock().total
    }

    /// Returns how many events there are after an id.
    pub(super) async fn len_after(&self, id: EventId) -> Result<u64, StoreError> {
        let (mut position, mut len) = (self.after(id), 0);
        loop {
            let read = self.next(&mut position, PAGE).await?.len();
            len += read as u64;
            if read == 0 {
                return Ok(len);
            }
        }
    }

    /// Returns how many events a reader may be behind before the log drops what it has not read.
    pub(super) fn most_unread(&self) -> u64 {
        let kept = if self.shared.is_some() {
            MAX_EVENTS
        } else {
            MAX_KEPT
        };
        // Far enough below, because more come while one is read.
        (kept / 2) as u64
    }

    /// Returns how many of the events after an id have one of these kinds, as far as they are kept.
    pub(super) fn count_after(&self, id: EventId, kinds: &[EventKind]) -> usize {
        let kept = self.lock();
        let events = kept.events.range(kept.index_after(id)..);
        let is_wanted = |kept: &&KeptEvent| kept.kind.is_some_and(|kind| kinds.contains(&kind));
        events.filter(is_wanted).count()
    }

    /// Reads the log more often until the guard is dropped.
    pub(super) fn follow_closely(&self) -> Following<'_> {
        self.followers.fetch_add(1, Ordering::Relaxed);
        self.wake.notify_one();
        Following(self)
    }

    /// Returns a receiver of changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns how many events did not fit into the queue.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn announce(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, KeptEvents> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.0.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KeptEvents {
    /// Appends an event to the log of this process.
    fn append(&mut self, text: String) {
        let now = EventId {
            ms: unix_time().as_millis() as u64,
            number: 0,
        };
        let id = now.max(self.last.next());
        self.extend([LoggedEvent { id, text }]);
    }

    fn extend(&mut self, events: impl IntoIterator<Item = LoggedEvent>) {
        for event in events {
            if self.events.len() == MAX_KEPT
                && let Some(first) = self.events.pop_front()
            {
                self.complete_after = first.event.id;
            }
            self.last = event.id;
            self.total += 1;
            let kind = kind_of(&event.text);
            self.events.push_back(KeptEvent { event, kind });
        }
    }

    fn index_after(&self, id: EventId) -> usize {
        self.events.partition_point(|kept| kept.event.id <= id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: &[LoggedEvent]) -> Vec<&str> {
        events.iter().map(|event| event.text.as_str()).collect()
    }

    #[tokio::test]
    async fn a_log_of_this_process_is_read_after_any_event() {
        let journal = Journal::new(None, "i");
        let mut position = journal.end();
        for text in ["a", "b", "c"] {
            journal.append(text.into(), None);
        }
        let events = journal.next(&mut position, 2).await.unwrap();
        assert_eq!(texts(&events), ["a", "b"]);
        assert!(events[0].id < events[1].id);
        assert_eq!(texts(&journal.next(&mut position, 9).await.unwrap()), ["c"]);
        assert!(journal.next(&mut position, 9).await.unwrap().is_empty());
        let mut resumed = journal.after(events[0].id);
        assert_eq!(
            texts(&journal.next(&mut resumed, 9).await.unwrap()),
            ["b", "c"]
        );
        assert_eq!(texts(&journal.last(2).0), ["b", "c"]);
    }

    #[tokio::test]
    async fn a_log_of_this_process_is_bounded() {
        let journal = Journal::new(None, "i");
        let mut position = journal.end();
        let text = |number: usize| format!("{{\"kind\":\"login\",\"n\":{number}}}");
        for number in 0..MAX_KEPT + 5 {
            journal.append(text(number), None);
        }
        let first = journal.next(&mut position, 1).await.unwrap();
        assert_eq!(texts(&first), [text(5)], "the oldest that is kept");
        let count = |kind| journal.count_after(first[0].id, &[kind]);
        assert_eq!(count(EventKind::Login), MAX_KEPT - 1);
        assert_eq!(count(EventKind::Store), 0);
    }
}
