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

/// How long until the bucket is full, and whether that had to be shortened.
#[inline(always)]
fn settle(rate: &Rate, stored: Option<Bucket>, now: Timestamp) -> (Fine, bool) {
    let Some(stored) = stored else {
        return (Fine::default(), false);
    };
    let full_at = in_parts_of(rate, stored);
    // The clock shows whole microseconds, so nothing is borrowed.
    let Some(whole) = full_at.whole.checked_sub(now.micros()) else {
        return (Fine::default(), false);
    };
    let owed = Fine {
        whole,
        part: full_at.part,
    };
    // Further ahead than the fullest debt: the clock went back, or the limit
    // was made smaller.
    if owed > rate.furthest() {
        (rate.furthest(), true)
    } else {
        (owed, false)
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
    let (owed, shortened) = settle(rate, stored, now);
    let corrected = shortened.then(|| bucket(rate, owed, now));
    if cost > limit.capacity() {
        let verdict = verdict(
            now,
            Retry::Never,
            None,
            remaining(limit, owed),
            Micros::new(owed.ceil()),
        );
        return (verdict, corrected, None);
    }
    let after = rate.add(owed, rate.time_of(cost));
    let (wait, delay) = if after <= rate.fill() {
        let delay = if rate.shape() { owed.ceil() } else { 0 };
        (Micros::ZERO, Some(Micros::new(delay)))
    } else {
        let wait = Micros::new(rate.saturating_sub(after, rate.fill()).ceil());
        let delay = rate.max_wait().filter(|most| wait <= *most);
        (wait, delay.map(|_| wait))
    };
    let taken = delay.is_some() && cost > 0;
    let left = if taken && mode == Mode::Take {
        after
    } else {
        owed
    };
    let verdict = verdict(
        now,
        Retry::After(wait),
        delay,
        remaining(limit, left),
        Micros::new(left.ceil()),
    );
    let charged = taken.then(|| bucket(rate, after, now));
    (verdict, corrected, charged)
}

/// v = min(C, v + n); `None` when the bucket is full again.
pub(super) fn refund(rate: &Rate, stored: Bucket, now: Timestamp, units: u64) -> Option<Bucket> {
    let (owed, _) = settle(rate, Some(stored), now);
    if units >= rate.units_in(owed) {
        return None;
    }
    let owed = rate.saturating_sub(owed, rate.time_of(units));
    Some(bucket(rate, owed, now))
}

/// C − ceil(owed·R/P), not below 0.
#[inline]
fn remaining(limit: &Limit, owed: Fine) -> u64 {
    limit.capacity().saturating_sub(limit.rate().units_in(owed))
}

/// A bucket that will be full when what it owes has come back.
#[inline]
fn bucket(rate: &Rate, owed: Fine, now: Timestamp) -> Bucket {
    Bucket {
        full_at: Fine {
            whole: now.micros() + owed.whole,
            part: owed.part,
        },
        // At most MAX_UNITS.
        refill: rate.refill() as u32,
    }
}
