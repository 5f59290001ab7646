//! Audit lines, which are never dropped.
//!
//! They have a queue of their own. A change reserves a place in it first, and waits while
//! the queue is full. So there is always room for the line of a change.

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// The target of audit lines.
pub(crate) const AUDIT: &str = "audit";

/// How many audit lines may be queued.
const MAX_LINES: usize = 1024;
/// How long a change waits for a place at most.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The free places. There is one log per process.
static PLACES: Semaphore = Semaphore::const_new(MAX_LINES);

thread_local! {
    /// The place of the line that is being formatted on this thread.
    static PLACE: Cell<Option<SemaphorePermit<'static>>> = const { Cell::new(None) };
}

/// A reserved place in the queue of audit lines. Dropping it unused frees the place.
#[derive(Debug)]
#[must_use = "a change must be logged"]
pub(crate) struct AuditPlace(SemaphorePermit<'static>);

impl AuditPlace {
    /// Reserves a place. Returns `None` if there is none for [`MAX_WAIT`], because standard
    /// error blocks or fails.
    pub(crate) async fn reserve() -> Option<Self> {
        let place = tokio::time::timeout(MAX_WAIT, PLACES.acquire()).await;
        place.ok()?.ok().map(Self)
    }

    /// Uses this place for the line that `log` writes with the target [`AUDIT`].
    pub(crate) fn write(self, log: impl FnOnce()) {
        PLACE.set(Some(self.0));
        log();
        PLACE.take();
    }
}

/// A queued audit line. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct AuditLine {
    pub(super) text: String,
    _place: Option<SemaphorePermit<'static>>,
}

/// The queue of audit lines, bounded by the places.
#[derive(Clone, Debug)]
pub(super) struct AuditQueue(Sender<AuditLine>);

impl AuditQueue {
    pub(super) fn new() -> (Self, Receiver<AuditLine>) {
        let (sender, lines) = mpsc::channel();
        (Self(sender), lines)
    }

    pub(super) fn push(&self, text: String) {
        let _place = PLACE.take();
        // The receiver lives as long as the writer thread.
        let _ = self.0.send(AuditLine { text, _place });
    }
}

/// Returns whether there are audit lines that are not written yet.
pub(super) fn is_pending() -> bool {
    PLACES.available_permits() < MAX_LINES
}
