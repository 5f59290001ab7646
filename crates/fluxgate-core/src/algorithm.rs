//! The algorithms, as pure functions of state, limit and time.
//!
//! A store that keeps [`Counter`]s needs none of these functions: see [`crate::store`]. They are
//! for stores that keep state in a form of their own, or decide elsewhere, as a script in a
//! server.
//!
//! Each file holds one algorithm, and `window` two: `settle` brings stored state to the present
//! and repairs the effects of a clock that went back, `assess` decides a request on it, `refund`
//! returns units, `cancel` undoes one charge, and `adjust` changes one to its real cost. The Lua
//! of the Redis store uses the same names in the same order.

mod adjust;
mod bucket;
mod concurrency;
mod counter;
mod grant;
mod sliding_log;
mod verdict;
mod window;

pub use adjust::{Adjusted, Adjustment};
pub use bucket::{Bucket, Overhang};
pub use concurrency::{Slots, SlotsAssessment};
pub use counter::Counter;
pub(crate) use counter::CounterAssessment;
pub use grant::{Grant, GrantReport, LeaseRequest, MAX_ENDS, Outstanding, balance_of, grant};
pub use sliding_log::{Log, LogAssessment, LogSummary};
pub use verdict::{Charged, Mode, Verdict};
pub use window::Counts;
pub(crate) use window::end_of;

use crate::limit::{FracMicros, Limit};
use crate::time::Timestamp;

/// The state of a band that fits into a few numbers: of all algorithms but the log
/// and concurrency.
///
/// The two buckets share a state, whatever their numbers. Counts belong to one
/// algorithm and window: a store keeps those of another one under another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The state of a bucket.
    Bucket(Bucket),
    /// The state of a counting window.
    Counts(Counts),
}

/// A verdict on a [`Cell`], and the states that may follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// The verdict.
    pub verdict: Verdict,
    /// The state to write even if nothing is charged, because the clock went back too
    /// far.
    pub corrected: Option<Cell>,
    /// The state to write if the request is charged; `None` if that changes nothing.
    pub charged: Option<Cell>,
}

impl Assessment {
    /// Returns the state to write if the request is charged. A charge includes the
    /// correction.
    pub fn to_write(&self) -> Option<&Cell> {
        self.charged.as_ref().or(self.corrected.as_ref())
    }
}

impl Cell {
    /// Assesses a request of `cost` units on `stored` at `now`. Not for a sliding log,
    /// whose state is a [`Log`], nor for concurrency, whose state is [`Slots`].
    pub fn assess(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> Assessment {
        if limit.algorithm().is_bucket() {
            let stored = stored.and_then(Self::bucket);
            let (verdict, corrected, charged) = Bucket::assess(limit, stored, now, cost, mode);
            return Assessment {
                verdict,
                corrected: corrected.map(Self::Bucket),
                charged: charged.map(Self::Bucket),
            };
        }
        let stored = stored.and_then(Self::counts);
        let (verdict, corrected, charged) = Counts::assess(limit, stored, now, cost, mode);
        Assessment {
            verdict,
            corrected: corrected.map(Self::Counts),
            charged: charged.map(Self::Counts),
        }
    }

    /// Returns `stored` with `units` refunded at `now`; `None` if nothing is owed any
    /// more.
    pub fn refund(limit: &Limit, stored: Self, now: Timestamp, units: u64) -> Option<Self> {
        match stored {
            Self::Bucket(stored) => {
                bucket::refund(limit.rate(), stored, now, units).map(Self::Bucket)
            }
            Self::Counts(stored) => window::refund(limit, stored, now, units).map(Self::Counts),
        }
    }

    /// Returns `stored` without the charge of `units` that went to `mark`; `None` if
    /// nothing is owed any more.
    pub fn cancel(
        limit: &Limit,
        stored: Self,
        now: Timestamp,
        units: u64,
        mark: FracMicros,
    ) -> Option<Self> {
        match stored {
            Self::Bucket(stored) => {
                bucket::cancel(limit.rate(), stored, now, units, mark).map(Self::Bucket)
            }
            Self::Counts(stored) => {
                window::cancel(limit, stored, now, units, mark.whole).map(Self::Counts)
            }
        }
    }

    fn bucket(self) -> Option<Bucket> {
        match self {
            Self::Bucket(bucket) => Some(bucket),
            Self::Counts(_) => None,
        }
    }

    fn counts(self) -> Option<Counts> {
        match self {
            Self::Counts(counts) => Some(counts),
            Self::Bucket(_) => None,
        }
    }
}
