//! A count that only one thread adds to.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only one thread adds to, and any may read.
///
/// So adding is a plain load and store: it takes no lock, and no other core's
/// cache line.
#[derive(Debug, Default)]
pub(super) struct Tally(AtomicU64);

impl Tally {
    pub(super) fn add(&self, more: u64) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count.wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
