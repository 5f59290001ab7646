//! Lines about a store that fails: when it begins, when it ends, and one a
//! second in between, however many requests meet it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::StoreError;

use super::clock;

/// How often it is told that a store still fails. It is back when it has not
/// failed for as long: of a cluster, a part may fail while the rest answers.
const EVERY: u64 = 1_000_000;

/// Whether the store fails. Times are in µs since the service began.
#[derive(Debug, Default)]
pub(super) struct StoreTrouble {
    /// Since when it fails; 0 if it does not.
    began: AtomicU64,
    /// When it failed last.
    last: AtomicU64,
    /// When that was last told.
    told: AtomicU64,
    /// How often it has failed since it began.
    failures: AtomicU64,
}

impl StoreTrouble {
    /// It failed.
    pub(super) fn failed(&self, error: &StoreError, now: Duration) {
        let now = clock::micros(now).max(1);
        self.last.fetch_max(now, Ordering::Relaxed);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let (reason, error) = (error.reason.name(), error.message.as_str());
        if change(&self.began, 0, now) {
            self.told.fetch_max(now, Ordering::Relaxed);
            tracing::warn!(reason, error, "the store fails");
            return;
        }
        let told = self.told.load(Ordering::Relaxed);
        if now.saturating_sub(told) >= EVERY && change(&self.told, told, now) {
            tracing::warn!(reason, error, failures, "the store still fails");
        }
    }

    /// It answered.
    pub(super) fn answered(&self, now: Duration) {
        let began = self.began.load(Ordering::Relaxed);
        if began != 0 {
            self.may_be_over(began, clock::micros(now));
        }
    }

    #[cold]
    fn may_be_over(&self, began: u64, now: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= EVERY && change(&self.began, began, 0) {
            let failures = self.failures.swap(0, Ordering::Relaxed);
            let failed_for_ms = last.saturating_sub(began) / 1_000;
            tracing::info!(failures, failed_for_ms, "the store is back");
        }
    }
}

/// Whether it was this one who changed it.
fn change(number: &AtomicU64, old: u64, new: u64) -> bool {
    number
        .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}
