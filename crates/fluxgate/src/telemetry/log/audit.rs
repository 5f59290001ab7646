//! Audit lines, which are never dropped.
//!
//! They have a queue of their own. A change reserves a line in it first, and waits while
//! the queue is full. So there is always room for the line of a change.

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// The target of audit lines.
pub(crate) const AUDIT: &str = "audit";

/// How many audit lines may be queued.
const MAX_LINES: usize = 1024;
/// The longest wait of a change for a free line.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// One permit for each free line. There is one log per process.
static PERMITS: Semaphore = Semaphore::const_new(MAX_LINES);

thread_local! {
    /// The permit of the line that is being formatted on this thread.
    static PERMIT: Cell<Option<SemaphorePermit<'static>>> = const { Cell::new(None) };
}

/// A reserved line in the queue of audit lines. Dropping it unused frees the line.
#[derive(Debug)]
#[must_use = "a change must be logged"]
pub(crate) struct AuditReservation(SemaphorePermit<'static>);

impl AuditReservation {
    /// Reserves a line. Returns `None` if none is free for [`MAX_WAIT`], because standard
    /// error blocks or fails.
    pub(crate) async fn reserve() -> Option<Self> {
        let permit = tokio::time::timeout(MAX_WAIT, PERMITS.acquire()).await;
        permit.ok()?.ok().map(Self)
    }

    /// Uses the reservation for the line that `log` writes with the target [`AUDIT`].
    pub(crate) fn write(self, log: impl FnOnce()) {
        PERMIT.set(Some(self.0));
        log();
        PERMIT.take();
    }
}

/// A queued audit line. Dropping it frees its permit.
#[derive(Debug)]
pub(super) struct AuditLine {
    pub(super) text: String,
    _permit: Option<SemaphorePermit<'static>>,
}

/// The queue of audit lines, bounded by the permits.
#[derive(Clone, Debug)]
pub(super) struct AuditQueue(Sender<AuditLine>);

impl AuditQueue {
    pub(super) fn new() -> (Self, Receiver<AuditLine>) {
        let (sender, lines) = mpsc::channel();
        (Self(sender), lines)
    }

    pub(super) fn push(&self, text: String) {
        let _permit = PERMIT.take();
        // The receiver lives as long as the writer thread.
        let _ = self.0.send(AuditLine { text, _permit });
    }
}

/// Returns whether there are audit lines that are not written yet.
pub(super) fn is_pending() -> bool {
    PERMITS.available_permits() < MAX_LINES
}
