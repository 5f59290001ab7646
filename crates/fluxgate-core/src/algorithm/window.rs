//! What the two counting windows share: aligned windows and their counts.

use super::Standing;
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

/// Counts as they are at an instant.
pub(super) struct Settled {
    /// The counts of the window that `standing.at` lies in.
    pub(super) counts: Counts,
    /// When to decide.
    pub(super) standing: Standing,
    /// Whether the window had to be moved back; that must be written.
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
        standing: Standing::at_clock(now),
        moved_back: false,
    };
    let Some(stored) = stored else {
        return settled;
    };
    let ahead = stored.start.saturating_sub(now.micros());
    if ahead > width {
        // The clock went back by more than a window: this becomes now's own.
        settled.counts = Counts { start, ..stored };
        settled.moved_back = true;
    } else if ahead > 0 {
        settled.counts = stored;
        settled.standing = Standing {
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

/// Takes `units` off the current count; `None` when no count is left.
pub(super) fn refund(limit: &Limit, stored: Counts, now: Timestamp, units: u64) -> Option<Counts> {
    let mut counts = settle(limit.window(), Some(stored), now).counts;
    if limit.algorithm() == Algorithm::FixedWindow {
        // It has no memory of the window before: a count from there is no state.
        counts.previous = 0;
    }
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    counts.current = counts.current.saturating_sub(units);
    (counts.current > 0 || counts.previous > 0).then_some(counts)
}

/// Takes `units` off the window that began at `start`, and off no other: a refund
/// would take them off whatever window is the current one. `None` when no count
/// is left.
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
    let counts_at_all = counts.current > 0 || counts.previous > 0;
    (counts_at_all && counts.start + windows * width > now.micros()).then_some(counts)
}

impl Counts {
    /// With `cost` more in the current window. The caller has seen that the
    /// sum is at most a capacity.
    pub(super) fn plus(mut self, cost: u64) -> Self {
        self.current += cost as u32;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A count of the window before is nothing to a fixed window: were it kept,
    /// a clock that then goes back would find a window that nobody charged.
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
