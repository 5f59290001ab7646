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
pub use sliding_log::{Log, LogAssessment};
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
    /// Whether this band lets it pass, at once or by a reservation.
    pub passes: bool,
    /// Whole units left after the decision.
    pub remaining: u64,
    /// Zero where it passes.
    pub retry_after: Retry,
    /// How long until the full quota is there again.
    pub reset_after: Micros,
    /// How long an admitted request must wait before it goes on.
    pub delay: Micros,
}

/// The state of a band that fits into a few numbers: all but a log.
///
/// It carries the algorithm and the window it was made under, so that a band
/// whose algorithm or window has changed starts afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The algorithm that wrote it.
    pub algorithm: Algorithm,
    /// The window that it was written under.
    pub window: Micros,
    /// The numbers.
    pub value: Value,
}

/// The numbers of a [`Cell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
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

impl Cell {
    /// Judges `cost` units on `stored` at `now`.
    ///
    /// # Panics
    /// Not for a sliding log: its state is a [`Log`], and the caller has it.
    pub fn assess(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> Assessment {
        match Self::value_for(limit, stored) {
            Numbers::Bucket(stored) => {
                let (verdict, corrected, charged) = bucket::assess(limit, stored, now, cost, mode);
                Self::assessment(limit, verdict, corrected, charged, Value::Bucket)
            }
            Numbers::Counts(stored) => {
                let assess = match limit.algorithm() {
                    Algorithm::SlidingWindow => sliding_window::assess,
                    _ => fixed_window::assess,
                };
                let (verdict, corrected, charged) = assess(limit, stored, now, cost, mode);
                Self::assessment(limit, verdict, corrected, charged, Value::Counts)
            }
        }
    }

    /// What is left of `stored` when `units` are given back at `now`; `None`
    /// when nothing is owed any more.
    pub fn refund(limit: &Limit, stored: Self, now: Timestamp, units: u64) -> Option<Self> {
        let value = match Self::value_for(limit, Some(stored)) {
            Numbers::Bucket(stored) => {
                Value::Bucket(bucket::refund(limit.rate(), stored?, now, units)?)
            }
            Numbers::Counts(stored) => {
                Value::Counts(window::refund(limit.window(), stored?, now, units)?)
            }
        };
        Some(Self::of(limit, value))
    }

    fn of(limit: &Limit, value: Value) -> Self {
        Self {
            algorithm: limit.algorithm(),
            window: limit.window(),
            value,
        }
    }

    fn assessment<N>(
        limit: &Limit,
        verdict: Verdict,
        corrected: Option<N>,
        charged: Option<N>,
        wrap: fn(N) -> Value,
    ) -> Assessment {
        Assessment {
            verdict,
            corrected: corrected.map(|numbers| Self::of(limit, wrap(numbers))),
            charged: charged.map(|numbers| Self::of(limit, wrap(numbers))),
        }
    }

    /// The stored numbers as far as they still speak of this limit.
    fn value_for(limit: &Limit, stored: Option<Self>) -> Numbers {
        let value = stored
            .filter(|cell| cell.algorithm == limit.algorithm() && cell.window == limit.window())
            .map(|cell| cell.value);
        if limit.algorithm().is_bucket() {
            Numbers::Bucket(match value {
                Some(Value::Bucket(bucket)) => Some(bucket),
                _ => None,
            })
        } else {
            Numbers::Counts(match value {
                Some(Value::Counts(counts)) => Some(counts),
                _ => None,
            })
        }
    }
}

enum Numbers {
    Bucket(Option<Bucket>),
    Counts(Option<Counts>),
}

/// A verdict from what every algorithm finds out: how long to wait if the
/// request does not pass at once, and what is left of the quota.
fn verdict(wait: Retry, delay: Option<Micros>, remaining: u64, reset_after: Micros) -> Verdict {
    let passes = delay.is_some();
    Verdict {
        passes,
        remaining,
        retry_after: if passes { Retry::NOW } else { wait },
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
