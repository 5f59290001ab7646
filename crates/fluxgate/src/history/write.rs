//! When the record is written.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::bounds::{LAST_TRIES, WRITE_INTERVAL, WRITES_PER_TRIM};
use super::collector::{Counts, History};
use crate::telemetry::unix_time;

impl History {
    /// Writes every few seconds, for as long as the runtime runs.
    pub(crate) async fn write_regularly(&self) {
        if self.writer.is_none() {
            return;
        }
        // The instances of a fleet write at different times.
        let millis = WRITE_INTERVAL.as_millis() as u64;
        let first = Duration::from_millis(RandomState::new().hash_one(0) % millis);
        tokio::time::sleep(first).await;
        let mut ticks = tokio::time::interval(WRITE_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut has_failed = false;
        let mut writes = 0;
        loop {
            ticks.tick().await;
            writes += 1;
            if writes % WRITES_PER_TRIM == 0 {
                self.trim().await;
            }
            let written = self.write().await;
            match written {
                Ok(()) if has_failed => {
                    tracing::info!("the record of what happened is written again");
                }
                Err(ref error) if !has_failed => {
                    let reason = error.reason.name();
                    tracing::warn!(
                        reason,
                        %error,
                        "the record of what happened cannot be written; what fits into memory is \
                         written later"
                    );
                }
                _ => {}
            }
            has_failed = written.is_err();
        }
    }

    /// Writes what is left at the end of the service.
    pub(crate) async fn write_last(&self) {
        self.collect();
        for attempt in 1..=LAST_TRIES {
            match self.write().await {
                Ok(()) if self.has_news().await => {}
                Ok(()) => return,
                Err(error) if attempt == LAST_TRIES => {
                    let waiting = self.engine.telemetry().history().waiting();
                    tracing::warn!(%error, waiting, "the last counts of the record are lost");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Returns whether another write would complete the index.
    async fn has_news(&self) -> bool {
        match &self.writer {
            Some(writer) => writer.lock().await.has_news(),
            None => false,
        }
    }

    /// Deletes the oldest rows of denials if there are too many.
    async fn trim(&self) {
        let Some(writer) = &self.writer else {
            return;
        };
        let now = unix_time();
        let minute = |time: Duration| time.as_secs() / 60;
        let first = minute(now.saturating_sub(self.config.keep));
        let most = self.config.denials as u64;
        // It is tried again.
        let _ = writer
            .record
            .trim_denials(first, minute(now) + 1, most)
            .await;
    }

    async fn write(&self) -> Result<(), fluxgate_core::StoreError> {
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        self.collect();
        let mut sending = writer.lock().await;
        let sent = writer.send(&mut sending, |batch| {
            let mut state = self.lock();
            if let Counts::Waiting(counts) = &mut state.counts {
                counts.drain_to(batch);
                state.denials.drain_to(batch);
            }
        });
        let sent = sent.await;
        let counters = self.engine.telemetry().history();
        counters.add_write(sent.is_ok());
        counters.add_lost_counts(sending.take_lost());
        drop(sending);
        sent?;
        self.write_audit(writer).await
    }
}
