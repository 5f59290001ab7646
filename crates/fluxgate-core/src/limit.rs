//! A limit: an algorithm with numbers that have been checked.

use std::fmt;
use std::time::Duration;

use crate::calendar::{Calendar, Window};
use crate::hold::{DEFAULT_HOLD, MAX_HOLD, MIN_HOLD};
pub use crate::rate::{FracMicros, Horizon, MAX_FILL, MAX_UNITS, Rate};
use crate::time::{Micros, Timestamp};

/// The largest capacity of a sliding log, which stores every unit.
pub const MAX_LOG_UNITS: u64 = 100_000;
/// The shortest window, period and `max_wait`.
pub const MIN_SPAN: Micros = Micros::new(1_000);
/// The longest window, period and `max_wait`: 366 days.
pub const MAX_SPAN: Micros = Micros::new(366 * 86_400_000_000);

/// The algorithms. A store must support all of them, so the list is exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Tokens that refill at a steady rate, up to the capacity.
    TokenBucket,
    /// A level that leaks at a steady rate and must not exceed the capacity.
    LeakyBucket,
    /// A count for each aligned window.
    FixedWindow,
    /// The time of every admitted unit.
    SlidingLog,
    /// Two counts, the older weighted by how much of it the window still covers.
    SlidingWindow,
    /// Slots that are held until they are released or expire.
    Concurrency,
}

impl Algorithm {
    /// Every name that a rule may use, with its algorithm.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("token_bucket", Self::TokenBucket),
        ("leaky_bucket", Self::LeakyBucket),
        ("fixed_window", Self::FixedWindow),
        ("sliding_log", Self::SlidingLog),
        ("sliding_window", Self::SlidingWindow),
        ("concurrency", Self::Concurrency),
        ("gcra", Self::TokenBucket),
    ];

    /// Returns whether this is one of the two buckets. Only they refill and can owe.
    pub const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }

    const fn max_capacity(self) -> u64 {
        match self {
            Self::SlidingLog => MAX_LOG_UNITS,
            _ => MAX_UNITS,
        }
    }
}

/// An algorithm and its numbers. They are checked when a `Limit` is built, and
/// never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    algorithm: Algorithm,
    capacity: u32,
    window: Micros,
    /// The windows of a fixed window that follows the calendar.
    calendar: Option<Calendar>,
    rate: Rate,
    scale: Scale,
}

impl Limit {
    /// Starts a limit of `capacity` units in `window`.
    pub const fn builder(algorithm: Algorithm, capacity: u64, window: Duration) -> LimitBuilder {
        LimitBuilder {
            algorithm,
            capacity,
            window: saturating_micros(window),
            calendar: None,
            refill: None,
            period: None,
            max_wait: None,
            shape: false,
        }
    }

    /// Starts a fixed window of `capacity` units in each window of a calendar.
    ///
    /// ```
    /// use fluxgate_core::{Calendar, CalendarUnit, Limit};
    ///
    /// let seoul = "Asia/Seoul".parse()?;
    /// let monthly = Calendar::new(CalendarUnit::Month).in_time_zone(seoul);
    /// let limit = Limit::calendar(10_000, monthly).build()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub const fn calendar(capacity: u64, calendar: Calendar) -> LimitBuilder {
        let window = calendar.unit().nominal().as_duration();
        let mut builder = Self::builder(Algorithm::FixedWindow, capacity, window);
        builder.calendar = Some(calendar);
        builder
    }

    /// Starts a limit on the slots that are held at the same time. A slot that is not
    /// released expires after a minute, or after [`LimitBuilder::hold`].
    pub const fn concurrency(capacity: u64) -> LimitBuilder {
        let hold = DEFAULT_HOLD.as_duration();
        Self::builder(Algorithm::Concurrency, capacity, hold)
    }

    /// Returns the same limit, which lets requests reserve up to `max_wait` ahead, in whole
    /// milliseconds. Windows, logs and shaping queues do not change.
    pub(crate) fn reserving(&self, max_wait: Duration) -> Self {
        let max_wait = max_wait.min(MAX_SPAN.as_duration());
        let sub_millis = Duration::from_nanos((max_wait.subsec_nanos() % 1_000_000).into());
        let reserving = self.to_builder().max_wait(max_wait - sub_millis).build();
        reserving.unwrap_or(*self)
    }

    /// Returns the same limit with this `max_wait`.
    pub(crate) const fn waiting(&self, max_wait: Option<Duration>) -> Result<Self, LimitError> {
        let mut builder = self.to_builder();
        builder.max_wait = match max_wait {
            Some(max_wait) => Some(saturating_micros(max_wait)),
            None => None,
        };
        builder.build()
    }

    /// Returns a builder of the same limit. A refill and a period that equal the defaults
    /// are left to them, so that another capacity or algorithm can be set.
    pub(crate) const fn to_builder(self) -> LimitBuilder {
        let rate = &self.rate;
        let has_rate = rate.refill() != self.capacity() || rate.period().get() != self.window.get();
        LimitBuilder {
            algorithm: self.algorithm,
            capacity: self.capacity(),
            window: self.window,
            calendar: self.calendar,
            refill: if has_rate { Some(rate.refill()) } else { None },
            period: if has_rate { Some(rate.period()) } else { None },
            max_wait: rate.max_wait(),
            shape: rate.shape(),
        }
    }

    /// Returns the algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns C: the units that fit.
    pub const fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Returns W: the window, the usual length of a calendar window, or how long a slot is
    /// held at most.
    pub const fn window(&self) -> Micros {
        self.window
    }

    /// Returns the calendar that the windows follow, if they do.
    pub const fn windows(&self) -> Option<&Calendar> {
        self.calendar.as_ref()
    }

    /// Returns the aligned window, or that of the calendar, that contains an instant.
    #[inline]
    pub fn window_at(&self, at: Timestamp) -> Window {
        if let Some(calendar) = &self.calendar {
            return calendar.window_at(at);
        }
        let start = at.micros() - at.micros() % self.window.get();
        Window {
            start,
            end: start + self.window.get(),
        }
    }

    /// Returns the refill of the two buckets; the other algorithms ignore it.
    pub const fn rate(&self) -> &Rate {
        &self.rate
    }

    /// Returns the size of the quota: the time to fill a bucket, the capacity of the
    /// others.
    pub(crate) const fn scale(&self) -> Scale {
        self.scale
    }
}

/// A number to within an eighth, in nine bits: the position of its highest bit and
/// the three bits below that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale(u16);

impl Scale {
    const MANTISSA_BITS: u32 = 3;

    pub(crate) const fn new(number: u64) -> Self {
        let number = if number == 0 { 1 } else { number };
        let exponent = number.ilog2();
        let mantissa = (number << (63 - exponent) << 1) >> (64 - Self::MANTISSA_BITS);
        Self((exponent << Self::MANTISSA_BITS) as u16 | mantissa as u16)
    }

    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the number, rounded down and at least 1.
    pub(crate) fn get(self) -> u64 {
        let exponent = self.0 >> Self::MANTISSA_BITS;
        let mantissa = self.0 & ((1 << Self::MANTISSA_BITS) - 1);
        let number = u128::from(1 << Self::MANTISSA_BITS | mantissa) << exponent;
        ((number >> Self::MANTISSA_BITS) as u64).max(1)
    }
}

/// Builds a [`Limit`]. The refill and the period default to the capacity and the
/// window.
#[derive(Clone, Debug)]
pub struct LimitBuilder {
    pub(crate) algorithm: Algorithm,
    pub(crate) capacity: u64,
    window: Micros,
    calendar: Option<Calendar>,
    refill: Option<u64>,
    period: Option<Micros>,
    max_wait: Option<Micros>,
    shape: bool,
}

impl LimitBuilder {
    /// Sets how long a slot is held at most if it is neither released nor renewed.
    pub const fn hold(mut self, hold: Duration) -> Self {
        self.window = saturating_micros(hold);
        self
    }

    /// Sets the units that return each period.
    pub const fn refill(mut self, units: u64) -> Self {
        self.refill = Some(units);
        self
    }

    /// Sets the time in which the refill returns.
    pub const fn period(mut self, period: Duration) -> Self {
        self.period = Some(saturating_micros(period));
        self
    }

    /// Lets a request that would be denied reserve up to this far ahead. Windows and
    /// logs cannot owe and ignore it.
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(saturating_micros(max_wait));
        self
    }

    /// Makes an admitted request wait until everything before it has leaked.
    pub const fn shape(mut self, shape: bool) -> Self {
        self.shape = shape;
        self
    }

    /// Checks the numbers and builds the limit.
    pub const fn build(self) -> Result<Limit, LimitError> {
        let Self {
            algorithm,
            capacity,
            window,
            calendar,
            refill,
            period,
            max_wait,
            shape,
        } = self;
        if let Err(error) = check_units(LimitField::Capacity, capacity, algorithm.max_capacity()) {
            return Err(error);
        }
        if matches!(algorithm, Algorithm::Concurrency) {
            if window.get() < MIN_HOLD.get() || window.get() > MAX_HOLD.get() {
                return Err(LimitError::Hold);
            }
            if max_wait.is_some() {
                return Err(LimitError::WaitForSlots);
            }
        } else if let Err(error) = check_span(LimitField::Window, window) {
            return Err(error);
        }
        if !algorithm.is_bucket() && refill.is_some() {
            let field = LimitField::Refill;
            return Err(LimitError::NotABucket { field });
        }
        if !algorithm.is_bucket() && period.is_some() {
            let field = LimitField::Period;
            return Err(LimitError::NotABucket { field });
        }
        if calendar.is_some() && !matches!(algorithm, Algorithm::FixedWindow) {
            return Err(LimitError::CalendarOnOther);
        }
        if shape && !matches!(algorithm, Algorithm::LeakyBucket) {
            return Err(LimitError::ShapeOnOther);
        }
        if shape && max_wait.is_some() {
            return Err(LimitError::ShapeAndWait);
        }
        let refill = match refill {
            Some(refill) => refill,
            None => capacity,
        };
        if let Err(error) = check_units(LimitField::Refill, refill, MAX_UNITS) {
            return Err(error);
        }
        let period = match period {
            Some(period) => period,
            None => window,
        };
        if let Err(error) = check_span(LimitField::Period, period) {
            return Err(error);
        }
        if let Some(max_wait) = max_wait
            && let Err(error) = check_span(LimitField::MaxWait, max_wait)
        {
            return Err(error);
        }
        // Both are at most MAX_UNITS by now.
        let (capacity, refill) = (capacity as u32, refill as u32);
        let max_wait = if algorithm.is_bucket() {
            max_wait
        } else {
            None
        };
        let Some(rate) = Rate::new(capacity, refill, period, max_wait, shape) else {
            return Err(LimitError::FillTooLong);
        };
        let scale = Scale::new(if algorithm.is_bucket() {
            rate.fill().whole
        } else {
            capacity as u64
        });
        Ok(Limit {
            algorithm,
            capacity,
            window,
            calendar,
            rate,
            scale,
        })
    }
}

const fn check_units(field: LimitField, given: u64, most: u64) -> Result<(), LimitError> {
    if 1 <= given && given <= most {
        Ok(())
    } else {
        Err(LimitError::Units { field, given, most })
    }
}

pub(crate) const fn check_span(field: LimitField, given: Micros) -> Result<(), LimitError> {
    let micros = given.get();
    let is_allowed = MIN_SPAN.get() <= micros && micros <= MAX_SPAN.get();
    if is_allowed && micros.is_multiple_of(1000) {
        Ok(())
    } else {
        Err(LimitError::Span { field })
    }
}

pub(crate) const fn saturating_micros(span: Duration) -> Micros {
    let micros = span.as_micros();
    Micros::new(if micros > u64::MAX as u128 {
        u64::MAX
    } else {
        micros as u64
    })
}

/// The number that a [`LimitError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitField {
    /// `capacity`
    Capacity,
    /// `window`
    Window,
    /// `refill`
    Refill,
    /// `period`
    Period,
    /// `max_wait`
    MaxWait,
}

impl LimitField {
    /// Returns its name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Window => "window",
            Self::Refill => "refill",
            Self::Period => "period",
            Self::MaxWait => "max_wait",
        }
    }
}

impl fmt::Display for LimitField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why numbers do not make a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A count is outside its domain.
    #[error("`{field}` is {given}; allowed is 1 to {most}")]
    Units {
        /// The count.
        field: LimitField,
        /// Its value.
        given: u64,
        /// The largest value that is allowed.
        most: u64,
    },
    /// A span is outside its domain.
    #[error("`{field}` must be a whole number of milliseconds from 1ms to 366d")]
    Span {
        /// The span.
        field: LimitField,
    },
    /// The bucket takes too long to fill.
    #[error(
        "filling from empty (capacity * period / refill) would take more than 3660 days; \
         raise `refill`, or lower `capacity` or `period`"
    )]
    FillTooLong,
    /// A refill or period was given for an algorithm that has none.
    #[error("`{field}` belongs to token_bucket and leaky_bucket only")]
    NotABucket {
        /// The refill or the period.
        field: LimitField,
    },
    /// Only a leaky bucket has a queue to shape.
    #[error("`shape: true` belongs to leaky_bucket only")]
    ShapeOnOther,
    /// Only a fixed window can follow the calendar.
    #[error("`calendar` belongs to fixed_window only")]
    CalendarOnOther,
    /// A hold is outside its domain.
    #[error("`hold` must be from 1s to 24h")]
    Hold,
    /// A request cannot reserve a slot that others hold.
    #[error(
        "`on_exceed: wait` cannot be combined with `algorithm: concurrency`: slots cannot be reserved ahead"
    )]
    WaitForSlots,
    /// Shaping and waiting exclude each other.
    #[error("`shape: true` cannot be combined with `on_exceed: wait`")]
    ShapeAndWait,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_within_an_eighth() {
        for number in (0..63).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3]) {
            let scale = Scale::new(number);
            assert_eq!(Scale::from_bits(scale.bits()), scale);
            let back = scale.get();
            assert!(
                back <= number && number - back <= number / 8,
                "{number} {back}"
            );
        }
    }
}
