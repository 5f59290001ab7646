//! Fixed windows, which count in each aligned window or in each one of a calendar, and sliding
//! windows, which add the previous count, weighted by how much of that window the sliding one
//! still covers.
//!
//! With `e` µs of the current window elapsed, a sliding window passes a request if
//! `previous·(W−e)/W + current + n ≤ C`. The comparison needs no division.

use super::verdict::{EffectiveTime, Mode, Verdict};
use crate::calendar::Window;
use crate::limit::{Algorithm, Limit};
use crate::time::{Retry, Timestamp};

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

impl Counts {
    /// Assesses a request. Returns the verdict, the state to write in any case, and the state to
    /// write if the request is charged.
    pub(crate) fn assess(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> (Verdict, Option<Self>, Option<Self>) {
        let mut settled = settle(limit, stored, now);
        let is_sliding = limit.algorithm() == Algorithm::SlidingWindow;
        if !is_sliding {
            // A fixed window ignores the one before.
            settled.counts.previous = 0;
        }
        let Settled {
            counts, end, time, ..
        } = settled;
        let (capacity, width) = (limit.capacity(), limit.window().get());
        let (elapsed, until_end) = (time.at - counts.start, end - time.at);

        let wait = if cost > capacity {
            Retry::Never
        } else if is_sliding {
            let wait = wait(counts, width, elapsed, capacity, cost);
            Retry::After(time.as_seen_by_clock(wait))
        } else if u64::from(counts.current) + cost > capacity {
            Retry::After(time.as_seen_by_clock(until_end))
        } else {
            Retry::NOW
        };
        let charged = (wait == Retry::NOW && cost > 0).then(|| counts.plus(cost));
        let reported = charged.filter(|_| mode.reports_charge()).unwrap_or(counts);
        // floor(C − estimate) = C − current − ceil(previous·(W−e)/W)
        let (carried, resets_in) = match reported {
            Self {
                current: 0,
                previous: 0,
                ..
            } => (0, 0),
            _ if !is_sliding => (0, until_end),
            Self {
                current, previous, ..
            } => (
                div_ceil(u64::from(previous), width - elapsed, width),
                if current > 0 { 2 * width } else { width } - elapsed,
            ),
        };
        let remaining = capacity.saturating_sub(u64::from(reported.current) + carried);
        let resets_in = time.as_seen_by_clock(resets_in);
        let verdict = Verdict::new(now, wait, remaining, resets_in);
        (verdict, settled.moved_back.then_some(counts), charged)
    }

    /// Adds `cost` to the current window. The sum is at most a capacity.
    pub(super) fn plus(mut self, cost: u64) -> Self {
        self.current += cost as u32;
        self
    }
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

/// Returns the time until `cost ≤ capacity` units pass: now, in this window, in the
/// next one, or after that one.
fn wait(counts: Counts, width: u64, elapsed: u64, capacity: u64, cost: u64) -> u64 {
    let current = u64::from(counts.current);
    let until_next = width - elapsed;
    match (capacity - cost).checked_sub(current) {
        // In this window, once the previous count has faded to `room`. At the start of
        // the next window it is zero, and only the current count remains.
        Some(room) => until_next.saturating_sub(covered(room, width, counts.previous.into())),
        // Only once the current count, as the previous one, has faded.
        None => until_next + width - covered(capacity - cost, width, current),
    }
}

/// Returns how many µs of a window of `count` units may still be covered if they are
/// to weigh at most `room`: floor(room·W/count), at most W.
fn covered(room: u64, width: u64, count: u64) -> u64 {
    if count <= room {
        return width;
    }
    match room.checked_mul(width) {
        Some(product) => product / count,
        // The quotient is below `width`, for the room is below the count.
        None => (u128::from(room) * u128::from(width) / u128::from(count)) as u64,
    }
}

/// Returns ceil(count·span/width), for a span of at most the width.
fn div_ceil(count: u64, span: u64, width: u64) -> u64 {
    match count.checked_mul(span) {
        Some(product) => product.div_ceil(width),
        // The quotient is at most `count`.
        None => (u128::from(count) * u128::from(span)).div_ceil(u128::from(width)) as u64,
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
