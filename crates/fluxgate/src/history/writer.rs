//! Writes to Redis what has been collected: one pipeline every few seconds.

use fluxgate_core::StoreError;
use fluxgate_redis::record::{DenialBlock, Record, RecordBatch};
use tokio::sync::{Mutex, MutexGuard};

/// Sends batches, one after the other.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) record: Record,
    /// Held while a batch is sent, and while the record is read: what is on its way is counted
    /// once.
    state: Mutex<WriterState>,
}

#[derive(Debug, Default)]
pub(super) struct WriterState {
    /// What the server may or may not have, and is sent again before anything else.
    unconfirmed: Option<RecordBatch>,
    /// The last batch that was confirmed.
    last: Option<RecordBatch>,
    /// The decisions that the server never accepts.
    lost: u64,
}

impl Writer {
    pub(super) fn new(record: Record) -> Self {
        Self {
            record,
            state: Mutex::default(),
        }
    }

    /// Waits until nothing is on its way.
    pub(super) async fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().await
    }

    /// Sends the batch that is not confirmed, if there is one.
    pub(super) async fn confirm(&self, state: &mut WriterState) -> Result<(), StoreError> {
        let Some(batch) = &mut state.unconfirmed else {
            return Ok(());
        };
        let sent = self.record.send(batch).await;
        state.lost = state.lost.saturating_add(batch.take_lost());
        sent?;
        state.last = state.unconfirmed.take();
        Ok(())
    }

    /// Sends a batch after those before it.
    pub(super) async fn send(
        &self,
        state: &mut WriterState,
        fill: impl FnOnce(&mut RecordBatch),
    ) -> Result<(), StoreError> {
        self.confirm(state).await?;
        let mut batch = self.record.new_batch();
        if let Some(last) = state.last.take() {
            batch.index_rows_of(&last);
        }
        fill(&mut batch);
        if batch.is_done() {
            return Ok(());
        }
        state.unconfirmed = Some(batch);
        self.confirm(state).await
    }
}

impl WriterState {
    /// Returns what the server has reported of denials without a row, and is not in the index yet.
    pub(super) fn confirmed_dropped(&self) -> Vec<(DenialBlock, u64)> {
        let batches = self.last.iter().chain(&self.unconfirmed);
        batches.flat_map(RecordBatch::confirmed_dropped).collect()
    }

    /// Returns how many decisions are lost since the last time.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Returns whether the index lacks what the server has reported.
    pub(super) fn has_news(&self) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(RecordBatch::has_news)
    }
}
