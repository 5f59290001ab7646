//! Logs an outage of the store: its start, its end, and one line a second in between. Start and end
//! are events, too.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::{Outcome, StoreError};
use tokio::sync::Notify;

use super::clock;
use super::metrics::lock;

/// How often a lasting outage is logged, in µs. The outage ends when the store has not
/// failed for this long: one node of a cluster may fail while the others answer.
const INTERVAL: u64 = 1_000_000;
/// How many starts and ends wait to become events.
const MAX_CHANGES: usize = 100;

/// The start or the end of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreOutageChange {
    /// The store has failed for this reason.
    Failed(&'static str),
    /// It answers again.
    Back {
        /// How long it has failed.
        failed_for: Duration,
    },
}

/// The current outage, if any. Times are in µs since the service started.
#[derive(Debug, Default)]
pub(super) struct StoreOutage {
    /// When it started, or 0 if there is none.
    started: AtomicU64,
    /// When the store last failed.
    last_failure: AtomicU64,
    /// When the outage was last logged.
    logged: AtomicU64,
    /// How many calls have failed in this outage.
    failures: AtomicU64,
    /// Starts and ends that are not events yet.
    changes: Mutex<VecDeque<StoreOutageChange>>,
    changed: Notify,
}

impl StoreOutage {
    /// Records a failure.
    pub(super) fn record_failure(&self, error: &StoreError, now: Duration) {
        let now = clock::micros(now).max(1);
        self.last_failure.fetch_max(now, Ordering::Relaxed);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let (reason, error) = (error.reason.name(), error.message.as_str());
        if replace(&self.started, 0, now) {
            self.logged.fetch_max(now, Ordering::Relaxed);
            tracing::warn!(reason, error, "the store is failing");
            self.add_change(StoreOutageChange::Failed(reason));
            return;
        }
        let logged = self.logged.load(Ordering::Relaxed);
        if now.saturating_sub(logged) >= INTERVAL && replace(&self.logged, logged, now) {
            tracing::warn!(reason, error, failures, "the store is still failing");
        }
    }

    /// Records that the store answered.
    pub(super) fn record_answer(&self, now: Duration) {
        let started = self.started.load(Ordering::Relaxed);
        if started != 0 {
            self.end_if_over(started, clock::micros(now));
        }
    }

    #[cold]
    fn end_if_over(&self, started: u64, now: u64) {
        let last = self.last_failure.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= INTERVAL && replace(&self.started, started, 0) {
            let failures = self.failures.swap(0, Ordering::Relaxed);
            let failed_for_ms = last.saturating_sub(started) / 1_000;
            tracing::info!(failures, failed_for_ms, "the store is back");
            let failed_for = Duration::from_millis(failed_for_ms);
            self.add_change(StoreOutageChange::Back { failed_for });
        }
    }

    fn add_change(&self, change: StoreOutageChange) {
        let mut changes = lock(&self.changes);
        if changes.len() < MAX_CHANGES {
            changes.push_back(change);
        }
        drop(changes);
        self.changed.notify_one();
    }

    /// Waits for the next start or end of an outage.
    pub(super) async fn next_change(&self) -> StoreOutageChange {
        loop {
            let change = lock(&self.changes).pop_front();
            match change {
                Some(change) => return change,
                None => self.changed.notified().await,
            }
        }
    }
}

/// Returns whether this outcome shows that the store answered.
pub(super) fn comes_from_store(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Allowed | Outcome::Denied | Outcome::ShadowDenied
    )
}

/// Replaces `old` with `new`. Returns `false` if another thread was faster.
fn replace(number: &AtomicU64, old: u64, new: u64) -> bool {
    number
        .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}
