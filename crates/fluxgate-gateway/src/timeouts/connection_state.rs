//! The state that a client connection shares with its requests.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

/// The state that a connection shares with its requests.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// The number of requests in flight.
    in_flight: AtomicUsize,
    /// The number of requests so far.
    begun: AtomicU64,
    /// The value of `begun` when all responses were last known to be flushed.
    flushed: AtomicU64,
    /// Whether a body was left unread.
    has_unread: AtomicBool,
    /// Wakes the reader once no request is in flight; until then it has no timeout.
    reader_waker: Mutex<Option<Waker>>,
    /// Notified when an HTTP/2 connection has been idle for too long.
    pub(crate) expired: Notify,
    /// Notified when an HTTP/1.1 connection can be parked.
    pub(crate) parked: Notify,
}

/// A request in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<ConnectionState>);

impl ConnectionState {
    /// Begins a request.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Returns the number of requests so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns whether requests are in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Records that everything written has been flushed.
    pub(super) fn record_flush(&self) {
        if !self.is_busy() {
            self.flushed.store(self.begun(), Ordering::Relaxed);
        }
    }

    /// Returns whether every request has been answered and every response flushed.
    pub(crate) fn is_answered(&self) -> bool {
        self.flushed.load(Ordering::Relaxed) == self.begun()
    }

    /// Records that the body of a request is not read to its end.
    pub(crate) fn leave_unread(&self) {
        self.has_unread.store(true, Ordering::Relaxed);
    }

    /// Returns whether a body was left unread.
    pub(crate) fn has_unread(&self) -> bool {
        self.has_unread.load(Ordering::Relaxed)
    }

    /// Returns the waker that is called once no request is in flight.
    pub(super) fn reader_waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.reader_waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        // From now on the reader has a timeout.
        if before == 1
            && let Some(reader) = self.0.reader_waker().take()
        {
            reader.wake();
        }
    }
}
