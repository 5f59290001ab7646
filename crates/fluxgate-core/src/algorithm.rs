//! The algorithms, as pure functions of state, limit and time.
//!
//! Each file holds one: `settle` brings stored state to the present and heals
//! what a clock that went back did to it, `assess` judges a request on it, and
//! `refund` gives units back. The Lua of the Redis store has the same names in
//! the same order.

mod bucket;
mod fixed_window;
mod sliding_log;
mod sliding_window;
mod window;

pub use bucket::Bucket;
pub use sliding_log::{Log, LogAssessment, LogSummary};
pub use window::Counts;

use crate::limit::{Algorithm, Limit};
use crate::time::{Micros, Retry, Timestamp};

/// Whether a request is to be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decide, and take the units if it passes.
    Take,
    /// Decide in the same way and take nothing.
    Peek,
}

/// What one band says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When it was asked, by the clock of the store.
    pub at: Timestamp,
    /// Whole units left after the decision.
    pub remaining: u64,
    /// Zero where it passes, and nowhere else.
    pub retry_after: Retry,
    /// How long until the full quota is there again.
    pub reset_after: Micros,
    /// How long an admitted request must wait before it goes on.
    pub delay: Micros,
}

impl Verdict {
    /// Whether this band lets it pass, at once or by a reservation.
    #[inline]
    pub fn passes(&self) -> bool {
        self.retry_after == Retry::NOW
    }
}

/// The state of a band that fits into a few numbers: all but a log.
///
/// A state speaks only of the algorithm and the window it was made under. A
/// store that finds it under another one must take it as absent: such a band
/// starts afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Of the two buckets.
    Bucket(Bucket),
    /// Of the two counting windows.
    Counts(Counts),
}

/// A verdict on a [`Cell`], and the states that may follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// The answer.
    pub verdict: Verdict,
    /// What to write even if nothing is charged: the clock went back too far.
    pub corrected: Option<Cell>,
    /// What to write if the request is charged; `None` if that changes nothing.
    pub charged: Option<Cell>,
}

impl Assessment {
    /// What to write when a request is charged: a charge contains the correction.
    pub fn to_write(&self) -> Option<&Cell> {
        self.charged.as_ref().or(self.corrected.as_ref())
    }
}

impl Cell {
    /// Judges `cost` units on `stored` at `now`. Not for a sliding log, whose
    /// state is a [`Log`].
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

    /// What is left of `stored` when `units` are given back at `now`; `None`
    /// when nothing is owed any more.
    pub fn refund(limit: &Limit, stored: Self, now: Timestamp, units: u64) -> Option<Self> {
        match stored {
            Self::Bucket(stored) => {
                bucket::refund(limit.rate(), stored, now, units).map(Self::Bucket)
            }
            Self::Counts(stored) => window::refund(limit, stored, now, units).map(Self::Counts),
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

impl Bucket {
    /// A verdict, what to write even if nothing is charged, and what to write
    /// if the request is: for a limit that is a bucket.
    #[inline(always)]
    pub(crate) fn assess(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> (Verdict, Option<Self>, Option<Self>) {
        bucket::assess(limit, stored, now, cost, mode)
    }
}

impl Counts {
    /// The same for a limit that is a counting window.
    pub(crate) fn assess(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> (Verdict, Option<Self>, Option<Self>) {
        match limit.algorithm() {
            Algorithm::SlidingWindow => sliding_window::assess(limit, stored, now, cost, mode),
            _ => fixed_window::assess(limit, stored, now, cost, mode),
        }
    }
}

/// A verdict from what every algorithm finds out: how long to wait if the
/// request does not pass at once, and what is left of the quota.
#[inline]
fn verdict(
    at: Timestamp,
    wait: Retry,
    delay: Option<Micros>,
    remaining: u64,
    reset_after: Micros,
) -> Verdict {
    Verdict {
        at,
        remaining,
        retry_after: if delay.is_some() { Retry::NOW } else { wait },
        reset_after,
        delay: delay.unwrap_or_default(),
    }
}

/// Where time stands for state that may lie ahead of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    /// The instant to decide at.
    at: u64,
    /// How far that is ahead of the clock; reported times grow by it.
    ahead: u64,
}

impl Standing {
    const fn at_clock(now: Timestamp) -> Self {
        Self {
            at: now.micros(),
            ahead: 0,
        }
    }

    /// A time from [`Standing::at`], as the caller's clock sees it.
    const fn seen_from_clock(self, span: u64) -> Micros {
        Micros::new(if span == 0 { 0 } else { span + self.ahead })
    }
}
