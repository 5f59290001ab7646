//! The health of the record of what happened.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::exposition::Exposition;
use super::family::Kind;

/// Counted by one thread, once a second or less often.
#[derive(Debug, Default)]
pub(crate) struct HistoryCounts {
    is_on: AtomicBool,
    writes: AtomicU64,
    failed_writes: AtomicU64,
    waiting: AtomicU64,
    rows: AtomicU64,
    lost_counts: AtomicU64,
}

impl HistoryCounts {
    /// Shows these metrics.
    pub(crate) fn enable(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Counts an attempt to write to Redis.
    pub(crate) fn add_write(&self, succeeded: bool) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if !succeeded {
            self.failed_writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets how many counts and rows wait to be written to Redis.
    pub(crate) fn set_waiting(&self, waiting: u64) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Sets how many rows of denials this process holds.
    pub(crate) fn set_rows(&self, rows: u64) {
        self.rows.store(rows, Ordering::Relaxed);
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Adds decisions that are missing in the counts.
    pub(crate) fn add_lost_counts(&self, lost: u64) {
        self.lost_counts.fetch_add(lost, Ordering::Relaxed);
    }

    pub(super) fn render(&self, out: &mut Exposition) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let help = "Attempts to write the record of what happened to Redis.";
        let name = "fluxgate_history_writes_total";
        out.one(name, Kind::Counter, help, get(&self.writes));
        let help = "Attempts to write the record that failed; it is written later.";
        let name = "fluxgate_history_write_failures_total";
        out.one(name, Kind::Counter, help, get(&self.failed_writes));
        let help = "Counts and rows of the record that wait to be written to Redis.";
        let name = "fluxgate_history_waiting";
        out.one(name, Kind::Gauge, help, get(&self.waiting));
        let help = "Rows of denials that this process holds.";
        let name = "fluxgate_history_denial_rows";
        out.one(name, Kind::Gauge, help, get(&self.rows));
        let help =
            "Decisions that are missing in the record: it had no room, or their keys are taken.";
        let mut family = out.family("fluxgate_history_lost_total", Kind::Counter, help);
        family.sample(&[("kind", "counts")], get(&self.lost_counts));
    }
}
