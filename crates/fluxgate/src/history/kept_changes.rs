//! The changes of rule sets that a process without Redis keeps.

use fluxgate_redis::record::RecordedChange;

/// The maximum number of changes.
const MAX_CHANGES: usize = 1_000;

/// The changes that a process without Redis keeps, the oldest first.
#[derive(Debug, Default)]
pub(super) struct KeptChanges(Vec<RecordedChange>);

impl KeptChanges {
    /// Returns all, the oldest first.
    pub(super) fn all(&self) -> &[RecordedChange] {
        &self.0
    }

    pub(super) fn add(&mut self, change: RecordedChange) {
        if self.0.len() == MAX_CHANGES {
            self.0.remove(0);
        }
        self.0.push(change);
    }
}
