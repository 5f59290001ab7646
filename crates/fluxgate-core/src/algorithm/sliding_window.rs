//! Sliding window: the previous count, weighted by how much of that window the
//! sliding one still covers, plus the current count.
//!
//! With `e` µs of the current window elapsed, a request passes if
//! `previous·(W−e)/W + current + n ≤ C`. The comparison needs no division.

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
        time,
        moved_back,
        ..
    } = settle(limit, stored, now);
    let width = limit.window().get();
    let elapsed = time.at - counts.start;
    let capacity = limit.capacity();

    let wait = if cost > capacity {
        Retry::Never
    } else {
        let wait = wait(counts, width, elapsed, capacity, cost);
        Retry::After(time.as_seen_by_clock(wait))
    };
    let passes = wait == Retry::NOW;
    let charged = (passes && cost > 0).then(|| counts.plus(cost));
    let left = match charged {
        Some(charged) if mode.reports_charge() => charged,
        _ => counts,
    };
    // floor(C − estimate) = C − current − ceil(previous·(W−e)/W)
    let carried = div_ceil(u64::from(left.previous), width - elapsed, width);
    let remaining = capacity.saturating_sub(u64::from(left.current) + carried);
    let reset_after = if left.current > 0 {
        time.as_seen_by_clock(2 * width - elapsed)
    } else if left.previous > 0 {
        time.as_seen_by_clock(width - elapsed)
    } else {
        Micros::ZERO
    };
    let verdict = Verdict::new(
        now,
        wait,
        passes.then_some(Micros::ZERO),
        remaining,
        reset_after,
    );
    (verdict, moved_back.then_some(counts), charged)
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
