//! Quotas: limits that are written in code.

use std::iter::{Once, once};
use std::time::Duration;

use crate::calendar::Calendar;
use crate::limit::{Algorithm, Limit, LimitBuilder, LimitError};

/// How many units are allowed, and how fast they become available again.
///
/// By default a quota is a token bucket: `Quota::per_second(10)` allows ten units at once,
/// and one more every tenth of a second.
///
/// The functions here take numbers that a program knows. They panic if the numbers make
/// no sense, such as zero units; in a `const` that is a compile-time error:
///
/// ```
/// use fluxgate_core::Quota;
///
/// const UPLOADS: Quota = Quota::per_minute(30).burst(5);
/// ```
///
/// ```compile_fail
/// # use fluxgate_core::Quota;
/// const NOTHING: Quota = Quota::per_second(0);
/// ```
///
/// For numbers that come from elsewhere, use [`Quota::try_per`], or build a [`Limit`] and
/// convert it:
///
/// ```
/// use std::time::Duration;
///
/// use fluxgate_core::{Algorithm, Limit, LimitError, Quota};
///
/// fn quota(units: u64, refill: u64, period: Duration) -> Result<Quota, LimitError> {
///     let limit = Limit::builder(Algorithm::LeakyBucket, units, period).refill(refill);
///     Ok(limit.build()?.into())
/// }
///
/// assert!(quota(0, 1, Duration::from_secs(1)).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota(Limit);

impl Quota {
    /// Allows `units` a second.
    ///
    /// # Panics
    /// If there are no units, or more than 1,000,000,000.
    pub const fn per_second(units: u32) -> Self {
        Self::per(units, Duration::from_secs(1))
    }

    /// Allows `units` a minute.
    ///
    /// # Panics
    /// If there are no units, or more than 1,000,000,000.
    pub const fn per_minute(units: u32) -> Self {
        Self::per(units, Duration::from_secs(60))
    }

    /// Allows `units` an hour.
    ///
    /// # Panics
    /// If there are no units, or more than 1,000,000,000.
    pub const fn per_hour(units: u32) -> Self {
        Self::per(units, Duration::from_secs(3_600))
    }

    /// Allows `units` in 24 hours.
    ///
    /// # Panics
    /// If there are no units, or more than 1,000,000,000.
    pub const fn per_day(units: u32) -> Self {
        Self::per(units, Duration::from_secs(86_400))
    }

    /// Allows `units` in each `window`.
    ///
    /// # Panics
    /// If there are no units, or more than 1,000,000,000, or if the window is not a whole
    /// number of milliseconds from 1 ms to 366 days.
    pub const fn per(units: u32, window: Duration) -> Self {
        Self::built(Limit::builder(Algorithm::TokenBucket, units as u64, window))
    }

    /// Like [`Quota::per`], but returns an error instead of panicking.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fluxgate_core::Quota;
    /// let error = Quota::try_per(0, Duration::from_secs(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "`capacity` is 0; allowed is 1 to 1000000000");
    /// ```
    pub const fn try_per(units: u64, window: Duration) -> Result<Self, LimitError> {
        match Limit::builder(Algorithm::TokenBucket, units, window).build() {
            Ok(limit) => Ok(Self(limit)),
            Err(error) => Err(error),
        }
    }

    /// Allows `units` in each calendar period, such as a day or a month. The algorithm is a fixed
    /// window.
    ///
    /// ```
    /// use fluxgate_core::{Calendar, CalendarUnit, KeyedLimiter, Quota};
    ///
    /// const MONTHLY: Quota = Quota::per_calendar(10_000, Calendar::new(CalendarUnit::Month));
    ///
    /// let zone = "America/New_York".parse()?;
    /// let daily = Calendar::new(CalendarUnit::Day).in_time_zone(zone);
    /// let limiter = KeyedLimiter::new(Quota::per_calendar(500, daily));
    /// assert!(limiter.check("ann").is_ok());
    /// # Ok::<_, fluxgate_core::UnknownTimeZone>(())
    /// ```
    ///
    /// # Panics
    /// If there are no units, or more than 1,000,000,000.
    pub const fn per_calendar(units: u32, calendar: Calendar) -> Self {
        Self::built(Limit::calendar(units as u64, calendar))
    }

    /// Sets how many units may be taken at once. They still return as fast as before.
    ///
    /// # Panics
    /// If there are no units, or more than 1,000,000,000; if they would take more than
    /// 3,660 days to return; or if the quota is not a bucket, because windows and logs have
    /// no burst of their own.
    #[must_use]
    pub const fn burst(self, units: u32) -> Self {
        let rate = self.0.rate();
        let mut builder = self.0.to_builder();
        builder.capacity = units as u64;
        let period = rate.period().as_duration();
        Self::built(builder.refill(rate.refill()).period(period))
    }

    /// Sets the algorithm; [`Algorithm::TokenBucket`] by default.
    ///
    /// # Panics
    /// If the quota has a burst and the algorithm is not a bucket; if it follows the
    /// calendar and the algorithm is not a fixed window; if it shapes and the algorithm is
    /// not a leaky bucket; or if the algorithm is a sliding log and there are
    /// more than 100,000 units.
    #[must_use]
    pub const fn algorithm(self, algorithm: Algorithm) -> Self {
        let mut builder = self.0.to_builder();
        builder.algorithm = algorithm;
        Self::built(builder)
    }

    /// Queues admitted units and releases them at the rate of the quota, instead of
    /// letting all of a burst pass at once.
    ///
    /// # Panics
    /// If the algorithm is not [`Algorithm::LeakyBucket`].
    #[must_use]
    pub const fn shaped(self) -> Self {
        Self::built(self.0.to_builder().shape(true))
    }

    const fn built(builder: LimitBuilder) -> Self {
        match builder.build() {
            Ok(limit) => Self(limit),
            Err(error) => panic!("{}", error.summary()),
        }
    }
}

impl From<Limit> for Quota {
    fn from(limit: Limit) -> Self {
        Self(limit)
    }
}

impl From<Quota> for Limit {
    fn from(quota: Quota) -> Self {
        quota.0
    }
}

/// Lets a single quota be passed where several are accepted.
impl IntoIterator for Quota {
    type Item = Self;
    type IntoIter = Once<Self>;

    fn into_iter(self) -> Once<Self> {
        once(self)
    }
}

impl LimitError {
    /// Returns the message without numbers, for errors at compile time.
    const fn summary(&self) -> &'static str {
        match self {
            Self::Units { .. } => {
                "a quota must have 1 to 1,000,000,000 units, a sliding log at most 100,000"
            }
            Self::Span { .. } => {
                "a window must be a whole number of milliseconds from 1 ms to 366 days"
            }
            Self::FillTooLong => "a burst must return within 3,660 days",
            Self::NotABucket { .. } => "only a token or leaky bucket has a burst",
            Self::CalendarOnOther => "only a fixed window can follow the calendar",
            Self::Hold => "slots must be held for 1 second to 24 hours",
            Self::WaitForSlots => "a request cannot wait for slots",
            Self::ShapeOnOther => "only a leaky bucket can shape",
            Self::ShapeAndWait => "a quota that shapes cannot have a longest wait",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_keeps_the_rate_in_any_order() {
        let leaky = Algorithm::LeakyBucket;
        let quota = Quota::per_second(10).burst(50).algorithm(leaky);
        assert_eq!(quota, Quota::per_second(10).algorithm(leaky).burst(50));
        let limit = Limit::from(quota);
        assert_eq!((limit.algorithm(), limit.capacity()), (leaky, 50));
        assert_eq!(limit.rate().refill(), 10);
        assert_eq!(limit.rate().period().get(), 1_000_000);
    }

    #[test]
    fn a_window_has_no_burst() {
        let window = Quota::per_minute(5).algorithm(Algorithm::FixedWindow);
        let burst = std::panic::catch_unwind(|| window.burst(9));
        assert!(burst.is_err());
        let log = std::panic::catch_unwind(|| {
            Quota::per_minute(100_001).algorithm(Algorithm::SlidingLog)
        });
        assert!(log.is_err());
    }
}
