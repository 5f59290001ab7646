//! The audit trail: who changed, refunded or reset what, and why. The audit log has the same lines;
//! this is what the console shows of them.

use std::sync::Arc;

use fluxgate_core::StoreError;

use super::audit_trail::AuditEntry;
use super::collector::History;
use super::error::HistoryError;
use super::writer::Writer;

impl History {
    /// Records a change. With Redis, it is written in the background.
    pub(crate) fn add_audit(self: &Arc<Self>, entry: &AuditEntry) {
        // Texts and numbers have a form in JSON.
        let text = serde_json::to_string(entry).unwrap_or_default();
        self.lock().audit.add(text);
        if self.writer.is_some() {
            let this = Arc::clone(self);
            self.runtime.spawn(async move {
                if let Some(writer) = &this.writer {
                    // If it fails, the next write of the record tries again.
                    let _ = this.write_audit(writer).await;
                }
            });
        }
    }

    /// Writes the entries that wait.
    pub(super) async fn write_audit(&self, writer: &Writer) -> Result<(), StoreError> {
        // One writer at a time, so that entries keep their order.
        let _sending = writer.lock().await;
        loop {
            let Some(oldest) = self.lock().audit.oldest() else {
                return Ok(());
            };
            writer.record.add_audit(&oldest).await?;
            self.lock().audit.remove_oldest(&oldest);
        }
    }

    /// Returns the last entries of the fleet as JSON, the newest first.
    pub(crate) async fn audit(self: &Arc<Self>, most: usize) -> Result<Vec<String>, HistoryError> {
        let this = Arc::clone(self);
        let read = async move { this.read_audit(most).await };
        let read = self.runtime.spawn(read).await;
        read.unwrap_or(Err(HistoryError::Closing))
    }

    async fn read_audit(&self, most: usize) -> Result<Vec<String>, HistoryError> {
        let written = match &self.writer {
            Some(writer) => {
                self.write_audit(writer).await?;
                writer.record.audit(most).await?
            }
            None => Vec::new(),
        };
        let state = self.lock();
        let kept = state.audit.newest_first().cloned();
        Ok(kept.chain(written).take(most).collect())
    }
}
