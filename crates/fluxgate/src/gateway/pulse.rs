//! What a connection and those who answer its requests know of each other.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

/// What the connection and those who answer its requests share.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Requests that are being answered.
    in_flight: AtomicUsize,
    /// Requests that there have been.
    begun: AtomicU64,
    /// Whether a body was left unread.
    has_unread: AtomicBool,
    /// Who waits for something to be read, while there is no bound on that.
    reader: Mutex<Option<Waker>>,
    /// Told when nothing has come for too long, where a farewell is due.
    tired: Notify,
    /// Notified when the connection is at rest.
    rested: Notify,
}

/// A request that is being answered, until this goes.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Pulse>);

impl Pulse {
    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// The body of a request is not read to its end.
    pub(super) fn leave_unread(&self) {
        self.has_unread.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_unread(&self) -> bool {
        self.has_unread.load(Ordering::Relaxed)
    }

    /// Who is woken once nothing is being answered.
    pub(super) fn reader(&self) -> MutexGuard<'_, Option<Waker>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing has come for too long.
    pub(super) fn tire(&self) {
        self.tired.notify_one();
    }

    /// Waits until nothing has come for too long.
    pub(super) async fn tired(&self) {
        self.tired.notified().await;
    }

    /// The connection is at rest: it has been idle for a while, and everything that
    /// was asked has been answered.
    pub(super) fn rest(&self) {
        self.rested.notify_one();
    }

    /// Waits until the connection is at rest.
    pub(super) async fn rested(&self) {
        self.rested.notified().await;
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        // From now on there is a bound.
        if before == 1
            && let Some(reader) = self.0.reader().take()
        {
            reader.wake();
        }
    }
}
