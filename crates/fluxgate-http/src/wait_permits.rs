//! The permits to wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of this process to wait.
#[derive(Debug)]
pub(crate) struct WaitPermits {
    free: Arc<Semaphore>,
    capacity: usize,
}

/// A permit of this process. Dropping it releases it.
pub(crate) type LocalPermit = OwnedSemaphorePermit;

impl WaitPermits {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(capacity)),
            capacity,
        }
    }

    /// Returns how many permits are taken.
    pub(crate) fn taken(&self) -> usize {
        self.capacity - self.free.available_permits()
    }

    /// Takes a permit, if one is free.
    pub(crate) fn take(&self) -> Option<LocalPermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }
}
