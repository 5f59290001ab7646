//! The verdict of a band on a request.

use crate::limit::{Algorithm, FracMicros, Limit};
use crate::time::{Micros, Retry, Timestamp};

/// Whether a request is charged, and whether it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decides, and takes the units if the request passes.
    Take,
    /// Decides as if no rule let requests wait, and takes the units if it passes.
    TakeNow,
    /// Decides like [`Mode::Take`] and takes nothing.
    Peek,
    /// Decides like [`Mode::TakeNow`] and takes nothing.
    PeekNow,
    /// Decides like [`Mode::Take`] and reports the quota as if the units were taken, but takes
    /// nothing.
    Preview,
}

impl Mode {
    /// Returns whether a request that passes is charged.
    pub fn takes(self) -> bool {
        matches!(self, Self::Take | Self::TakeNow)
    }

    /// Returns whether a request that passes is reported as charged.
    pub fn reports_charge(self) -> bool {
        matches!(self, Self::Take | Self::TakeNow | Self::Preview)
    }

    /// Returns whether requests may wait.
    pub fn waits(self) -> bool {
        matches!(self, Self::Take | Self::Peek | Self::Preview)
    }

    /// Returns the mode that decides in the same way, and neither takes nor reports a charge.
    pub fn peeking(self) -> Self {
        if self.waits() {
            Self::Peek
        } else {
            Self::PeekNow
        }
    }
}

/// The verdict of one band on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The time of the decision, by the clock of the store.
    pub at: Timestamp,
    /// Whole units left after the decision.
    pub remaining: u32,
    /// For a bucket, the fraction of a microsecond in the exact reset time, in R-ths (see
    /// [`FracMicros`]). `reset_after` is that time rounded up.
    pub part: u32,
    /// The time until the request would pass; zero if and only if it passes.
    pub retry_after: Retry,
    /// The time until the full quota is available again.
    pub reset_after: Micros,
    /// How long an admitted request must wait before it proceeds.
    pub delay: Micros,
}

impl Verdict {
    /// A denial of a request that can never pass.
    pub(crate) const NEVER: Self = Self {
        at: Timestamp::saturating_from_micros(0),
        remaining: 0,
        part: 0,
        retry_after: Retry::Never,
        reset_after: Micros::ZERO,
        delay: Micros::ZERO,
    };

    /// Builds the verdict on a request that passes at once or not at all, from the wait until it
    /// would and the quota that is left.
    #[inline]
    pub(super) fn new(at: Timestamp, wait: Retry, remaining: u64, reset_after: Micros) -> Self {
        Self {
            at,
            // At most a capacity.
            remaining: remaining as u32,
            part: 0,
            retry_after: wait,
            reset_after,
            delay: Micros::ZERO,
        }
    }

    /// Returns the verdict of a band that charges denied requests too. `passes` is whether the band
    /// lets the request pass, and `after` is its verdict on the same request after the charge.
    pub fn charged_always(passes: bool, after: Self) -> Self {
        Self {
            retry_after: if passes {
                Retry::NOW
            } else {
                after.retry_after
            },
            delay: Micros::ZERO,
            ..after
        }
    }

    /// Returns whether this band lets the request pass, at once or by a reservation.
    #[inline]
    pub fn passes(&self) -> bool {
        self.retry_after == Retry::NOW
    }
}

/// Identifies a charge so that it can be cancelled. It is derived from the verdict on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// When the full quota is available again after the charge.
    full_at: FracMicros,
}

impl Charged {
    /// Returns the charge that this verdict is about.
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

    /// Returns where the charge is recorded in the state: the instant at which a bucket is full
    /// after it, the start of a window, or the event of a log.
    pub fn mark(&self, limit: &Limit) -> FracMicros {
        let end = self.full_at.whole;
        let width = limit.window().get();
        let whole = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => return self.full_at,
            Algorithm::FixedWindow => {
                let last = Timestamp::saturating_from_micros(end.saturating_sub(1));
                limit.window_at(last).start
            }
            Algorithm::SlidingLog => end.saturating_sub(width),
            Algorithm::SlidingWindow => end.saturating_sub(2 * width),
            // Slots are identified by their hold, not by a mark.
            Algorithm::Concurrency => end,
        };
        FracMicros { whole, part: 0 }
    }
}

/// The instant to decide at, for state that may lie ahead of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EffectiveTime {
    pub(super) at: u64,
    /// How far `at` is ahead of the clock. It is added to every reported span.
    pub(super) ahead: u64,
}

impl EffectiveTime {
    pub(super) const fn of_clock(now: Timestamp) -> Self {
        Self {
            at: now.micros(),
            ahead: 0,
        }
    }

    /// Converts a span from `at` to one from the clock's current time. Zero stays zero.
    pub(super) const fn as_seen_by_clock(self, span: u64) -> Micros {
        Micros::new(if span == 0 { 0 } else { span + self.ahead })
    }
}
