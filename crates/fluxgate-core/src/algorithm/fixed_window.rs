//! Fixed window: one count for each aligned window, or for each one of a calendar.

use super::verdict::{Mode, Verdict};
use super::window::{Counts, Settled, settle};
use crate::limit::Limit;
use crate::time::{Micros, Retry, Timestamp};

pub(super) fn assess(
    limit: &Limit,
    stored: Option<Counts>,
    now: Timestamp,
    cost: u64,
    mode: Mode,
) -> (Verdict, Option<Counts>, Option<Counts>) {
    let Settled {
        counts,
        end,
        time,
        moved_back,
    } = settle(limit, stored, now);
    // A fixed window ignores the one before.
    let counts = Counts {
        previous: 0,
        ..counts
    };
    let capacity = limit.capacity();
    let count = u64::from(counts.current);
    let until_end = time.as_seen_by_clock(end - time.at);

    let wait = if cost > capacity {
        Retry::Never
    } else if count + cost > capacity {
        Retry::After(until_end)
    } else {
        Retry::NOW
    };
    let passes = wait == Retry::NOW;
    let charged = (passes && cost > 0).then(|| counts.plus(cost));
    let left = match charged {
        Some(charged) if mode.reports_charge() => u64::from(charged.current),
        _ => count,
    };
    let reset_after = if left > 0 { until_end } else { Micros::ZERO };
    let verdict = Verdict::new(
        now,
        wait,
        passes.then_some(Micros::ZERO),
        capacity.saturating_sub(left),
        reset_after,
    );
    (verdict, moved_back.then_some(counts), charged)
}
