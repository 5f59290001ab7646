//! Aligned windows and their counts, shared by the two counting windows.

use super::verdict::EffectiveTime;
use crate::limit::{Algorithm, Limit};
use crate::time::{Micros, Timestamp};

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
    pub(super) time: EffectiveTime,
    /// Whether the window had to be moved back, which must be written.
    pub(super) moved_back: bool,
}

pub(super) fn settle(window: Micros, stored: Option<Counts>, now: Timestamp) -> Settled {
    let width = window.get();
    let start = now.micros() - now.micros() % width;
    let mut settled = Settled {
        counts: Counts {
            start,
            previous: 0,
            current: 0,
        },
        time: EffectiveTime::of_clock(now),
        moved_back: false,
    };
    let Some(stored) = stored else {
        return settled;
    };
    let ahead = stored.start.saturating_sub(now.micros());
    if ahead > width {
        // The clock went back by more than a window: the counts become those of now.
        settled.counts = Counts { start, ..stored };
        settled.moved_back = true;
    } else if ahead > 0 {
        settled.counts = stored;
        settled.time = EffectiveTime {
            at: stored.start,
            ahead,
        };
    } else if stored.start == start {
        settled.counts = stored;
    } else if stored.start + width == start {
        settled.counts.previous = stored.current;
    }
    settled
}

/// Takes `units` off the current count. Returns `None` if no count is left.
pub(super) fn refund(limit: &Limit, stored: Counts, now: Timestamp, units: u64) -> Option<Counts> {
    let mut counts = settle(limit.window(), Some(stored), now).counts;
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
    let windows = 1 + u64::from(sliding && counts.current > 0);
    let has_counts = counts.current > 0 || counts.previous > 0;
    (has_counts && counts.start + windows * width > now.micros()).then_some(counts)
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
