//! Logs an outage of the store: its start, its end, and one line a second in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::StoreError;

use super::clock;

/// How often a lasting outage is logged, in µs. It is over when the store has not failed
/// for as long: a part of a cluster may fail while the rest answers.
const INTERVAL: u64 = 1_000_000;

/// The current outage, if any. Times are in µs since the service started.
#[derive(Debug, Default)]
pub(super) struct StoreOutage {
    /// When it began; 0 if there is none.
    began: AtomicU64,
    /// When the store failed last.
    last: AtomicU64,
    /// When it was last logged.
    logged: AtomicU64,
    /// How often the store has failed since then.
    failures: AtomicU64,
}

impl StoreOutage {
    /// Records a failure.
    pub(super) fn failed(&self, error: &StoreError, now: Duration) {
        let now = clock::micros(now).max(1);
        self.last.fetch_max(now, Ordering::Relaxed);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let (reason, error) = (error.reason.name(), error.message.as_str());
        if change(&self.began, 0, now) {
            self.logged.fetch_max(now, Ordering::Relaxed);
            tracing::warn!(reason, error, "the store fails");
            return;
        }
        let logged = self.logged.load(Ordering::Relaxed);
        if now.saturating_sub(logged) >= INTERVAL && change(&self.logged, logged, now) {
            tracing::warn!(reason, error, failures, "the store still fails");
        }
    }

    /// Records an answer.
    pub(super) fn answered(&self, now: Duration) {
        let began = self.began.load(Ordering::Relaxed);
        if began != 0 {
            self.may_be_over(began, clock::micros(now));
        }
    }

    #[cold]
    fn may_be_over(&self, began: u64, now: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= INTERVAL && change(&self.began, began, 0) {
            let failures = self.failures.swap(0, Ordering::Relaxed);
            let failed_for_ms = last.saturating_sub(began) / 1_000;
            tracing::info!(failures, failed_for_ms, "the store is back");
        }
    }
}

/// Returns whether this call changed the number.
fn change(number: &AtomicU64, old: u64, new: u64) -> bool {
    number
        .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}
