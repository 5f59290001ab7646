//! A client that follows the events.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_redis::EventId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Events;
use super::event::{json_with_id, with_id};
use super::journal::Position;

/// How often a comment is sent if nothing happens, so that proxies do not close the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many events one message has at most.
const PAGE: usize = 100;
/// How many events without an id are recognized when they get one.
const MAX_SHOWN: usize = 1_000;

/// Follows the events, as server-sent events.
#[derive(Debug)]
pub(crate) struct EventViewer {
    events: Arc<Events>,
    position: Position,
    changes: watch::Receiver<u64>,
    /// Hashes of the events that were sent without an id.
    shown: VecDeque<u64>,
    has_begun: bool,
}

impl EventViewer {
    /// Starts after an event, or with the next one.
    pub(crate) fn new(events: Arc<Events>, after: Option<EventId>) -> Self {
        let journal = &events.journal;
        Self {
            position: after.map_or_else(|| journal.end(), |id| journal.after(id)),
            changes: journal.subscribe(),
            shown: VecDeque::new(),
            has_begun: false,
            events,
        }
    }

    /// Returns the next events, or a comment if there are none for a while; `None` when the service
    /// closes.
    pub(crate) async fn next(&mut self, closing: &CancellationToken) -> Option<Bytes> {
        if !std::mem::replace(&mut self.has_begun, true) {
            // The client sees at once that it is connected.
            return Some(Bytes::from_static(b": events\n\n"));
        }
        let events = Arc::clone(&self.events);
        let _following = events.journal.follow_closely();
        let until = tokio::time::Instant::now() + HEARTBEAT;
        loop {
            self.changes.mark_unchanged();
            let text = self.read().await;
            if !text.is_empty() {
                return Some(text.into());
            }
            tokio::select! {
                _ = self.changes.changed() => {}
                () = tokio::time::sleep_until(until) => {
                    return Some(Bytes::from_static(b": nothing new\n\n"));
                }
                () = closing.cancelled() => return None,
            }
        }
    }

    /// Returns the events since the last call.
    async fn read(&mut self) -> String {
        let journal = &self.events.journal;
        // If Redis does not answer, older events are read later.
        let events = journal.next(&mut self.position, PAGE).await;
        let mut text = String::new();
        for event in events.unwrap_or_default() {
            let hash = hash_of(&event.text);
            let shown = self.shown.iter().position(|shown| *shown == hash);
            if let Some(shown) = shown {
                // Only the id is new. Without data, clients remember it and report nothing.
                self.shown.remove(shown);
                text += &format!("id: {}\n\n", event.id);
            } else {
                text += &format!("id: {}\ndata: {}\n\n", event.id, with_id(&event));
            }
        }
        for event in journal.next_outgoing(&mut self.position) {
            if self.shown.len() == MAX_SHOWN {
                self.shown.pop_front();
            }
            self.shown.push_back(hash_of(&event));
            text += &format!("data: {}\n\n", json_with_id(None, &event));
        }
        text
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
