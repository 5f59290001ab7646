//! Changes a charge to its real cost, when a hold is settled.
//!
//! # A hold never exceeds the limit
//!
//! While it is held, the whole reserved cost is charged. If the real cost is lower, only the
//! difference returns, and only to where it was taken: a window or event that no longer
//! counts has nothing to return to, and in a bucket later reservations keep their instants
//! (see `bucket.rs`). So what is used and what is reserved are together at most
//! the limit, as long as no request uses more than was reserved.
//!
//! If the real cost is higher, the excess is charged at once and later requests pay for it.
//! The units of a rule with `charge: always` are charged in the same way if the request is
//! denied. A band owes at most its capacity (v ≥ −C, counts ≤ 2C), so no settlement keeps it closed
//! for longer than it takes to fill twice. What does not fit is reported.

use super::bucket::{self, Bucket};
use super::sliding_log::Log;
use super::window::{self, Counts};
use super::{Cell, Mode, Verdict};
use crate::limit::{Algorithm, FracMicros, Limit};
use crate::time::Timestamp;

/// A charge, and its real cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// The units that were charged.
    pub reserved: u64,
    /// The units to charge instead.
    pub cost: u64,
    /// Where the units went: see [`Charged::mark`](super::Charged::mark). In a log that was
    /// moved back before the charge, the time of the event as if it had not been.
    pub mark: FracMicros,
}

/// The state after an adjustment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjusted {
    /// The state to write, if there is any. A quota that is full again has one too: it is full
    /// from this instant on, and not before it if the clock goes back.
    pub state: Option<Cell>,
    /// The units that did not fit.
    pub uncharged: u64,
}

impl Adjustment {
    /// Returns the adjustment that charges units whether or not they fit.
    pub fn charge(units: u64) -> Self {
        Self {
            reserved: 0,
            cost: units,
            mark: FracMicros::default(),
        }
    }

    /// Returns whether the cost differs from what was reserved. If not, the state is left
    /// as it is.
    pub fn is_needed(&self) -> bool {
        self.reserved != self.cost
    }

    fn returned(&self) -> u64 {
        self.reserved.saturating_sub(self.cost)
    }

    fn excess(&self) -> u64 {
        self.cost.saturating_sub(self.reserved)
    }
}

impl Cell {
    /// Returns the verdict on a request of `cost` units after `units` are charged, whether or
    /// not they fit.
    pub fn assess_charged(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        units: u64,
        cost: u64,
    ) -> Verdict {
        let charged = match units {
            0 => stored,
            _ => Self::adjust(limit, stored, now, &Adjustment::charge(units)).state,
        };
        Self::assess(limit, charged, now, cost, Mode::PeekNow).verdict
    }

    /// Changes a charge on `stored` at `now`. Not for a sliding log, whose state is a [`Log`],
    /// nor for slots.
    pub fn adjust(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        adjustment: &Adjustment,
    ) -> Adjusted {
        if limit.algorithm().is_bucket() {
            let stored = stored.and_then(Self::bucket);
            let (state, uncharged) = adjust_bucket(limit, stored, now, adjustment);
            let state = state.map(Self::Bucket);
            return Adjusted { state, uncharged };
        }
        let stored = stored.and_then(Self::counts);
        let adjusted = adjust_counts(limit, stored, now, adjustment);
        Adjusted {
            state: adjusted.map(|(counts, _)| Self::Counts(counts)),
            uncharged: adjusted.map_or(0, |(_, uncharged)| uncharged),
        }
    }
}

fn adjust_bucket(
    limit: &Limit,
    stored: Option<Bucket>,
    now: Timestamp,
    adjustment: &Adjustment,
) -> (Option<Bucket>, u64) {
    let rate = limit.rate();
    let excess = adjustment.excess();
    if excess == 0 {
        let returned = adjustment.returned();
        let mark = adjustment.mark;
        let state = stored.map(|stored| bucket::return_units(rate, stored, now, returned, mark));
        return (state, 0);
    }
    let (owed, _) = bucket::settle(rate, stored, now);
    let fill = rate.fill();
    let most = rate.saturating_sub(rate.add(fill, fill), owed);
    let charged = excess.min(rate.whole_units_in(most));
    let state = bucket::charge(rate, stored, now, owed, charged);
    (state, excess - charged)
}

fn adjust_counts(
    limit: &Limit,
    stored: Option<Counts>,
    now: Timestamp,
    adjustment: &Adjustment,
) -> Option<(Counts, u64)> {
    let settled = window::settle(limit, stored, now);
    let is_sliding = limit.algorithm() == Algorithm::SlidingWindow;
    let excess = adjustment.excess();
    if excess == 0 {
        let width = limit.window().get();
        let start = adjustment.mark.whole;
        let counts_still =
            settled.counts.start == start || is_sliding && settled.counts.start == start + width;
        // The state stays that of its own window. If it became that of the present, a clock
        // that goes back would find the counts erased.
        let mut counts = if settled.moved_back {
            settled.counts
        } else {
            stored?
        };
        let returned = u32::try_from(adjustment.returned()).unwrap_or(u32::MAX);
        if counts_still && counts.start == start {
            counts.current = counts.current.saturating_sub(returned);
        } else if counts_still && counts.start == start + width {
            counts.previous = counts.previous.saturating_sub(returned);
        }
        return Some((counts, 0));
    }
    let mut counts = settled.counts;
    if !is_sliding {
        // A fixed window ignores the one before.
        counts.previous = 0;
    }
    let room = (2 * limit.capacity()).saturating_sub(counts.current.into());
    let charged = excess.min(room);
    // At most twice a capacity, which fits.
    counts.current += charged as u32;
    Some((counts, excess - charged))
}

impl Log {
    /// Changes a charge at `now`. Returns the units that did not fit.
    pub fn adjust(&mut self, limit: &Limit, now: Timestamp, adjustment: &Adjustment) -> u64 {
        let assessment = Self::assess(limit, Some(self), now, 0, Mode::Peek);
        self.correct(&assessment);
        let excess = adjustment.excess();
        if excess == 0 {
            self.return_units(adjustment.mark, adjustment.returned());
            return 0;
        }
        let room = (2 * limit.capacity()).saturating_sub(self.counted_at(limit, &assessment));
        let charged = excess.min(room);
        if charged > 0 {
            self.add(limit, assessment.at(), charged);
        }
        excess - charged
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000).unwrap()
    }

    fn limit(algorithm: Algorithm) -> Limit {
        let limit = Limit::builder(algorithm, 10, Duration::from_secs(10));
        limit.build().unwrap()
    }

    /// Charges 6 of 10 units at 100 s, changes that to `cost` at `now`, and returns what is
    /// left then, below zero if it is owed, and what was not charged.
    fn adjusted(algorithm: Algorithm, cost: u64, now: u64) -> (i64, u64) {
        let limit = limit(algorithm);
        let charged = Cell::assess(&limit, None, at(100), 6, Mode::Take);
        let mark = super::super::Charged::by(&charged.verdict).mark(&limit);
        let adjustment = Adjustment {
            reserved: 6,
            cost,
            mark,
        };
        let Adjusted { state, uncharged } =
            Cell::adjust(&limit, charged.charged, at(now), &adjustment);
        let used = match state {
            None => unreachable!("a charge leaves state"),
            Some(Cell::Bucket(bucket)) => {
                (bucket.full_at.whole.saturating_sub(at(now).micros()) / 1_000_000) as i64
            }
            Some(Cell::Counts(counts)) => i64::from(counts.current),
        };
        (10 - used, uncharged)
    }

    #[test]
    fn a_lower_cost_returns_units_and_a_higher_one_owes_up_to_the_capacity() {
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow] {
            assert_eq!(adjusted(algorithm, 2, 100), (8, 0), "{algorithm:?}");
            assert_eq!(adjusted(algorithm, 0, 100), (10, 0), "{algorithm:?}");
            assert_eq!(adjusted(algorithm, 10, 100), (0, 0), "{algorithm:?}");
            assert_eq!(adjusted(algorithm, 15, 100), (-5, 0), "{algorithm:?}");
            assert_eq!(adjusted(algorithm, 25, 100), (-10, 5), "{algorithm:?}");
        }
    }

    #[test]
    fn nothing_returns_to_a_window_that_no_longer_counts() {
        // The state is still that of the old window.
        assert_eq!(adjusted(Algorithm::FixedWindow, 2, 110), (4, 0));
        assert_eq!(adjusted(Algorithm::FixedWindow, 8, 110), (8, 0));
        assert_eq!(adjusted(Algorithm::TokenBucket, 2, 104), (10, 0));
    }
}
