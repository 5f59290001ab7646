//! Audit lines, which are never dropped.
//!
//! They have a queue of their own. A change takes a place in it first, and waits for one
//! while the queue is full. So every change has a place for its line, and no other line
//! takes it.

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// The target of audit lines.
pub(crate) const AUDIT: &str = "audit";

/// How many audit lines may wait to be written.
const MAX_LINES: usize = 1024;
/// How long a change waits for a place at most.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The places that are free; of the process, as the log is.
static PLACES: Semaphore = Semaphore::const_new(MAX_LINES);

thread_local! {
    /// The place of the line that is being formatted on this thread.
    static PLACE: Cell<Option<SemaphorePermit<'static>>> = const { Cell::new(None) };
}

/// A place in the queue of audit lines. One that is not used is free again when
/// it is dropped.
#[derive(Debug)]
#[must_use = "a change must be noted"]
pub(crate) struct AuditPlace(SemaphorePermit<'static>);

impl AuditPlace {
    /// Takes a place; `None` if there is none for five seconds, because the log is not
    /// read or cannot be written.
    pub(crate) async fn reserve() -> Option<Self> {
        let place = tokio::time::timeout(LONGEST_WAIT, PLACES.acquire()).await;
        place.ok()?.ok().map(Self)
    }

    /// Writes a line in this place: the one that `log` writes, with the target
    /// [`AUDIT`].
    pub(crate) fn write(self, log: impl FnOnce()) {
        PLACE.set(Some(self.0));
        log();
        PLACE.take();
    }
}

/// An audit line on its way. Its place is free once it is dropped.
#[derive(Debug)]
pub(super) struct AuditLine {
    pub(super) text: String,
    _place: Option<SemaphorePermit<'static>>,
}

/// Takes audit lines. The places are the bound.
#[derive(Clone, Debug)]
pub(super) struct AuditQueue(Sender<AuditLine>);

impl AuditQueue {
    pub(super) fn new() -> (Self, Receiver<AuditLine>) {
        let (sender, lines) = mpsc::channel();
        (Self(sender), lines)
    }

    pub(super) fn push(&self, text: String) {
        let _place = PLACE.take();
        // The receiver lives as long as the thread that writes.
        let _ = self.0.send(AuditLine { text, _place });
    }
}

/// Returns whether there are lines that are not written yet.
pub(super) fn is_pending() -> bool {
    PLACES.available_permits() < MAX_LINES
}
