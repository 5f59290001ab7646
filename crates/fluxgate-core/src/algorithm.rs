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

pub use bucket::{Bucket, Overhang};
pub use sliding_log::{Log, LogAssessment, LogSummary};
pub use window::Counts;

use std::fmt;
use std::str::FromStr;

use crate::limit::{Algorithm, FracMicros, Limit, MAX_UNITS};
use crate::time::{Micros, Retry, Timestamp};

/// Whether a request is to be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decide, and take the units if it passes.
    Take,
    /// Decide as if no rule let requests wait, and take the units if it passes.
    TakeNow,
    /// Decide in the same way as [`Mode::Take`] and take nothing.
    Peek,
    /// Decide in the same way as [`Mode::TakeNow`] and take nothing.
    PeekNow,
}

impl Mode {
    /// Whether units are taken when a request passes.
    pub fn takes(self) -> bool {
        matches!(self, Self::Take | Self::TakeNow)
    }

    /// Whether requests may wait.
    pub fn waits(self) -> bool {
        matches!(self, Self::Take | Self::Peek)
    }

    /// The mode that decides in the same way and takes nothing.
    pub fn peeking(self) -> Self {
        match self.waits() {
            true => Self::Peek,
            false => Self::PeekNow,
        }
    }
}

/// What one band says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When it was asked, by the clock of the store.
    pub at: Timestamp,
    /// Whole units left after the decision.
    pub remaining: u32,
    /// Of a bucket, the R-ths of a microsecond that `reset_after` was rounded up
    /// from.
    pub part: u32,
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

/// A charge that may be cancelled, by what its verdict said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// When the full quota is there again after it.
    full_at: FracMicros,
}

impl Charged {
    /// The charge that this verdict is about.
    pub fn by(verdict: &Verdict) -> Self {
        let whole = verdict
            .at
            .micros()
            .saturating_add(verdict.reset_after.get());
        Self {
            full_at: FracMicros {
                whole: whole - u64::from(verdict.part > 0),
                part: verdict.part,
            },
        }
    }

    /// What the charge went to: of a bucket the instant at which it is full after
    /// it, of a window its start, of a log its event.
    pub fn mark(&self, limit: &Limit) -> FracMicros {
        let windows = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => return self.full_at,
            Algorithm::FixedWindow | Algorithm::SlidingLog => 1,
            Algorithm::SlidingWindow => 2,
        };
        FracMicros {
            whole: { self.full_at.whole }.saturating_sub(windows * limit.window().get()),
            part: 0,
        }
    }
}

/// As `whole.part`, to be read back.
impl fmt::Display for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.full_at.whole, self.full_at.part)
    }
}

impl FromStr for Charged {
    type Err = ParseChargedError;

    fn from_str(text: &str) -> Result<Self, ParseChargedError> {
        let (whole, part) = text.split_once('.').ok_or(ParseChargedError)?;
        let whole: u64 = whole.parse().map_err(|_| ParseChargedError)?;
        let part = part.parse().map_err(|_| ParseChargedError)?;
        // No bucket is further from full than the last instant and its horizon.
        if whole >> 58 > 0 || u64::from(part) >= MAX_UNITS {
            return Err(ParseChargedError);
        }
        Ok(Self {
            full_at: FracMicros { whole, part },
        })
    }
}

/// A text that does not say where a charge went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an instant in microseconds such as `1700000000000000.0`")]
pub struct ParseChargedError;

/// The state of a band that fits into a few numbers: all but a log.
///
/// The two buckets share a state, whatever their numbers. Counts belong to the
/// algorithm and the window that they were made under: a store keeps those of
/// another one under another key.
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

    /// What is left of `stored` when a charge of `units` is cancelled that went to
    /// `mark`; `None` when nothing is owed any more.
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
        // At most a capacity.
        remaining: remaining as u32,
        part: 0,
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
