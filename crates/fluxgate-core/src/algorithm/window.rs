//! Aligned windows and their counts, shared by the two counting windows.

use super::verdict::EffectiveTime;
use crate::calendar::Window;
use crate::limit::{Algorithm, Limit};
use crate::time::Timestamp;

/// The counts of an aligned window and of the one before it. A fixed window
/// keeps no previous count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// When the current window began.
    pub start: u64,
    /// Units admitted in the window before.
    pub previous: u32,
    /// Units admitted in this window.
    pub current: u32,
}

/// Counts brought to an instant.
pub(super) struct Settled {
    /// The counts of the window that contains `time.at`.
    pub(super) counts: Counts,
    /// When that window ends.
    pub(super) end: u64,
    pub(super) time: EffectiveTime,
    /// Whether the window had to be moved back, which must be written.
    pub(super) moved_back: bool,
}

pub(super) fn settle(limit: &Limit, stored: Option<Counts>, now: Timestamp) -> Settled {
    let Window { start, end } = limit.window_at(now);
    let mut settled = Settled {
        counts: Counts {
            start,
            previous: 0,
            current: 0,
        },
        end,
        time: EffectiveTime::of_clock(now),
        moved_back: false,
    };
    let Some(stored) = stored else {
        return settled;
    };
    if stored.start > end {
        // The clock went back beyond the window before: the counts become those of now.
        settled.counts = Counts { start, ..stored };
        settled.moved_back = true;
    } else if stored.start > now.micros() {
        settled.counts = stored;
        settled.end = end_of(limit, stored.start);
        settled.time = EffectiveTime {
            at: stored.start,
            ahead: stored.start - now.micros(),
        };
    } else if stored.start >= start {
        // Later than `start` only by another edition of the time zones.
        settled.counts = stored;
    } else if stored.start + limit.window().get() == start {
        settled.counts.previous = stored.current;
    }
    settled
}

/// Returns when the window that contains `start` ends.
pub(crate) fn end_of(limit: &Limit, start: u64) -> u64 {
    limit
        .window_at(Timestamp::saturating_from_micros(start))
        .end
}

/// Takes `units` off the current count. Returns `None` if no count is left.
pub(super) fn refund(limit: &Limit, stored: Counts, now: Timestamp, units: u64) -> Option<Counts> {
    let mut counts = settle(limit, Some(stored), now).counts;
    if limit.algorithm() == Algorithm::FixedWindow {
        // It ignores the window before, so a count from there is not state.
        counts.previous = 0;
    }
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    counts.current = counts.current.saturating_sub(units);
    (counts.current > 0 || counts.previous > 0).then_some(counts)
}

/// Takes `units` off the window that began at `start`, and off no other. (A refund
/// takes them off the current window.) Returns `None` if no count is left.
pub(super) fn cancel(
    limit: &Limit,
    stored: Counts,
    now: Timestamp,
    units: u64,
    start: u64,
) -> Option<Counts> {
    let width = limit.window().get();
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    let sliding = limit.algorithm() == Algorithm::SlidingWindow;
    let mut counts = stored;
    if counts.start == start {
        counts.current = counts.current.saturating_sub(units);
    } else if sliding && counts.start == start + width {
        counts.previous = counts.previous.saturating_sub(units);
    }
    let mut end = end_of(limit, counts.start);
    if sliding && counts.current > 0 {
        end += width;
    }
    let has_counts = counts.current > 0 || counts.previous > 0;
    (has_counts && end > now.micros()).then_some(counts)
}

impl Counts {
    /// Adds `cost` to the current window. The sum is at most a capacity.
    pub(super) fn plus(mut self, cost: u64) -> Self {
        self.current += cost as u32;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A fixed window ignores the count of the window before. If it were kept, a clock
    /// that goes back would find a window that was never charged.
    #[test]
    fn a_refund_in_the_next_window_leaves_no_fixed_count() {
        let stored = Counts {
            start: 1_000_000,
            previous: 0,
            current: 5,
        };
        let now = Timestamp::from_micros(2_500_000).unwrap();
        for (algorithm, left) in [
            (Algorithm::FixedWindow, None),
            (Algorithm::SlidingWindow, Some((2_000_000, 5, 0))),
        ] {
            let limit = Limit::builder(algorithm, 10, Duration::from_secs(1));
            let counts = refund(&limit.build().unwrap(), stored, now, 1);
            let counts = counts.map(|counts| (counts.start, counts.previous, counts.current));
            assert_eq!(counts, left);
        }
    }
}
