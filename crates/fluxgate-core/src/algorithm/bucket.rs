//! Token bucket and leaky bucket: one state, read from both ends.
//!
//! The state is the instant at which the bucket is full (has leaked empty)
//! again. `owed`, the time from now until then, is C − v tokens of refill, and
//! it is the level w of the leaky one. One unit moves the instant by P/R; what
//! is allowed is `owed + n·P/R ≤ C·P/R`.

use super::{Mode, Verdict, verdict};
use crate::limit::{Fine, Limit, Rate};
use crate::time::{Micros, Retry, Timestamp};

/// The instant at which a bucket is full, and the refill that its fraction
/// counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// When it is full.
    pub full_at: Fine,
    /// R: the denominator of `full_at.part`.
    pub refill: u32,
}

/// The instant at which the bucket is full, and whether it had to be pulled back.
#[inline]
fn settle(rate: &Rate, stored: Option<Bucket>, now: Timestamp) -> (Fine, bool) {
    let now = Fine {
        whole: now.micros(),
        part: 0,
    };
    let Some(stored) = stored else {
        return (now, false);
    };
    let full_at = in_parts_of(rate, stored);
    // Further ahead than the fullest debt: the clock went back, or the limit
    // was made smaller.
    let mut furthest = rate.add(now, rate.fill());
    furthest.whole += rate.max_wait().unwrap_or_default().get();
    if full_at > furthest {
        (furthest, true)
    } else {
        (full_at, false)
    }
}

/// The same instant with the fraction in R-ths of today's R; one that does not
/// fit goes up to the next microsecond.
#[inline]
fn in_parts_of(rate: &Rate, stored: Bucket) -> Fine {
    let Bucket { full_at, refill } = stored;
    if u64::from(refill) == rate.refill() || full_at.part == 0 {
        return full_at;
    }
    let scaled = u64::from(full_at.part) * rate.refill();
    if scaled.is_multiple_of(u64::from(refill)) {
        Fine {
            whole: full_at.whole,
            // A fraction below one, in R-ths: below R.
            part: (scaled / u64::from(refill)) as u32,
        }
    } else {
        Fine {
            whole: full_at.whole + 1,
            part: 0,
        }
    }
}

#[inline(always)]
pub(super) fn assess(
    limit: &Limit,
    stored: Option<Bucket>,
    now: Timestamp,
    cost: u64,
    mode: Mode,
) -> (Verdict, Option<Bucket>, Option<Bucket>) {
    let rate = limit.rate();
    let (full_at, pulled_back) = settle(rate, stored, now);
    let corrected = pulled_back.then(|| bucket(rate, full_at));
    let clock = Fine {
        whole: now.micros(),
        part: 0,
    };
    let owed = rate.saturating_sub(full_at, clock);

    if cost > limit.capacity() {
        let verdict = verdict(
            Retry::Never,
            None,
            remaining(limit, owed),
            Micros::new(owed.ceil()),
        );
        return (verdict, corrected, None);
    }
    let after = rate.add(owed, rate.time_of(cost));
    let wait = Micros::new(rate.saturating_sub(after, rate.fill()).ceil());
    let delay = if wait == Micros::ZERO {
        Some(if rate.shape() {
            Micros::new(owed.ceil())
        } else {
            Micros::ZERO
        })
    } else {
        rate.max_wait().filter(|most| wait <= *most).map(|_| wait)
    };
    let taken = delay.is_some() && cost > 0;
    let left = if taken && mode == Mode::Take {
        after
    } else {
        owed
    };
    let verdict = verdict(
        Retry::After(wait),
        delay,
        remaining(limit, left),
        Micros::new(left.ceil()),
    );
    let charged = taken.then(|| bucket(rate, rate.add(clock, after)));
    (verdict, corrected, charged)
}

/// v = min(C, v + n); `None` when the bucket is full again.
pub(super) fn refund(rate: &Rate, stored: Bucket, now: Timestamp, units: u64) -> Option<Bucket> {
    let (full_at, _) = settle(rate, Some(stored), now);
    let clock = Fine {
        whole: now.micros(),
        part: 0,
    };
    let owed = rate.saturating_sub(full_at, clock);
    if units >= rate.units_in(owed) {
        return None;
    }
    let owed = rate.saturating_sub(owed, rate.time_of(units));
    Some(bucket(rate, rate.add(clock, owed)))
}

/// C − ceil(owed·R/P), not below 0.
#[inline]
fn remaining(limit: &Limit, owed: Fine) -> u64 {
    limit.capacity().saturating_sub(limit.rate().units_in(owed))
}

#[inline]
fn bucket(rate: &Rate, full_at: Fine) -> Bucket {
    Bucket {
        full_at,
        // At most MAX_UNITS.
        refill: rate.refill() as u32,
    }
}
