//! A limit: an algorithm with numbers that are known to be good.

use std::fmt;
use std::time::Duration;

use crate::time::Micros;

/// The largest capacity and refill.
pub const MAX_UNITS: u64 = 1_000_000_000;
/// The largest capacity of a sliding log, which remembers every unit.
pub const MAX_LOG_UNITS: u64 = 100_000;
/// The shortest window, period and `max_wait`.
pub const MIN_SPAN: Micros = Micros::new(1_000);
/// The longest window, period and `max_wait`: 366 days.
pub const MAX_SPAN: Micros = Micros::new(366 * DAY);
/// The longest time that a bucket may take to fill from empty: 3,660 days.
pub const MAX_FILL: Micros = Micros::new(3_660 * DAY);

const DAY: u64 = 86_400_000_000;

/// The five algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Tokens that are refilled at a steady rate, up to the capacity.
    TokenBucket,
    /// A level that leaks at a steady rate and must not pass the capacity.
    LeakyBucket,
    /// A count for each aligned window.
    FixedWindow,
    /// The time of every admitted unit.
    SlidingLog,
    /// Two counts, the older weighted by how much of it the window still covers.
    SlidingWindow,
}

impl Algorithm {
    /// Every name that a rule may give, with what it means.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("token_bucket", Self::TokenBucket),
        ("leaky_bucket", Self::LeakyBucket),
        ("fixed_window", Self::FixedWindow),
        ("sliding_log", Self::SlidingLog),
        ("sliding_window", Self::SlidingWindow),
        ("gcra", Self::TokenBucket),
    ];

    /// Whether it is one of the two buckets, which alone have a refill and can owe.
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

/// An algorithm and its numbers, checked: nothing that holds a `Limit` need
/// check them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    algorithm: Algorithm,
    capacity: u32,
    window: Micros,
    rate: Rate,
}

impl Limit {
    /// Starts a limit of `capacity` units in `window`.
    pub fn builder(algorithm: Algorithm, capacity: u64, window: Duration) -> LimitBuilder {
        LimitBuilder {
            algorithm,
            capacity,
            window: micros_of(window),
            refill: None,
            period: None,
            max_wait: None,
            shape: false,
        }
    }

    /// How it counts.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// C: the units that fit.
    pub const fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// W: the window.
    pub const fn window(&self) -> Micros {
        self.window
    }

    /// The refill of the two buckets; the other algorithms do not look at it.
    pub const fn rate(&self) -> &Rate {
        &self.rate
    }
}

/// A number of microseconds with a fraction: `whole + part / R`, where R is the
/// refill of the limit it belongs to and `part < R`.
///
/// The order of the fields is the order of the numbers, so pairs of one limit
/// compare as what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FracMicros {
    /// Whole microseconds.
    pub whole: u64,
    /// How many R-ths of a microsecond more.
    pub part: u32,
}

impl FracMicros {
    /// Whole microseconds, rounded up.
    pub const fn ceil(self) -> u64 {
        self.whole + (self.part > 0) as u64
    }
}

/// The furthest from full that a bucket may stand: a power of two of
/// microseconds, kept with the bucket's state.
///
/// It is twice the time to fill from empty, and what may be reserved, rounded up.
/// A charge therefore leaves a bucket within half of its horizon or little more,
/// and one that stands beyond it can only have got there by a clock that went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Horizon(u8);

impl Horizon {
    /// The largest exponent: 2 · 3,660 + 366 days are less than 2^50 µs.
    pub const MAX_EXPONENT: u8 = 50;

    /// The least power of two that is not less than `2·C·P/R + max_wait`.
    fn covering(fill: FracMicros, refill: u32, max_wait: Micros) -> Self {
        // A power of two covers a fraction if it covers the next whole number.
        let rest = (2 * u64::from(fill.part)).div_ceil(u64::from(refill));
        let span = 2 * fill.whole + rest + max_wait.get();
        Self(span.max(1).next_power_of_two().ilog2() as u8)
    }

    /// The horizon of `2^exponent` µs, if any limit has one so far.
    pub const fn from_exponent(exponent: u8) -> Option<Self> {
        if exponent <= Self::MAX_EXPONENT {
            Some(Self(exponent))
        } else {
            None
        }
    }

    /// The horizon whose exponent stands in the lowest six bits.
    pub(crate) const fn from_low_bits(bits: u64) -> Self {
        Self((bits & 0x3f) as u8)
    }

    /// The exponent of the power of two.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// The horizon in microseconds.
    pub const fn micros(self) -> u64 {
        1 << self.0
    }
}

/// How a bucket refills, with everything worked out that does not depend on
/// the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    refill: u32,
    period: Micros,
    one_unit: FracMicros,
    fill: FracMicros,
    furthest: FracMicros,
    horizon: Horizon,
    max_wait: Option<Micros>,
    shape: bool,
}

impl Rate {
    /// R: units per period.
    pub const fn refill(&self) -> u64 {
        self.refill as u64
    }

    /// P: the period.
    pub const fn period(&self) -> Micros {
        self.period
    }

    /// C·P/R: the time it takes to fill from empty.
    pub const fn fill(&self) -> FracMicros {
        self.fill
    }

    /// The furthest from full that a charge may leave the bucket: the time to
    /// fill from empty, and what may be reserved.
    pub const fn furthest(&self) -> FracMicros {
        self.furthest
    }

    /// The horizon of a state that this rate has charged.
    pub const fn horizon(&self) -> Horizon {
        self.horizon
    }

    /// How far a request may reserve ahead, where the rule waits.
    pub const fn max_wait(&self) -> Option<Micros> {
        self.max_wait
    }

    /// Whether an admitted request is told to wait for the level before it.
    pub const fn shape(&self) -> bool {
        self.shape
    }

    /// n·P/R: the time that `units` take to refill. At most C·P/R for the
    /// units of one request, so the sum with any instant fits.
    #[inline]
    pub fn time_of(&self, units: u64) -> FracMicros {
        if units == 1 {
            return self.one_unit;
        }
        split(units, self.period, self.refill)
    }

    /// `a + b`, carried once.
    #[inline]
    pub fn add(&self, a: FracMicros, b: FracMicros) -> FracMicros {
        let part = u64::from(a.part) + u64::from(b.part);
        let carry = u64::from(part >= self.refill());
        FracMicros {
            whole: a.whole + b.whole + carry,
            // Below the refill again, which fits.
            part: (part - carry * self.refill()) as u32,
        }
    }

    /// `a − b`, or zero if `b` is the greater.
    #[inline]
    pub fn saturating_sub(&self, a: FracMicros, b: FracMicros) -> FracMicros {
        if a <= b {
            return FracMicros::default();
        }
        let borrow = u64::from(a.part < b.part);
        FracMicros {
            whole: a.whole - b.whole - borrow,
            part: (u64::from(a.part) + borrow * self.refill() - u64::from(b.part)) as u32,
        }
    }

    /// The units that refill in `span`, rounded up: ceil((whole·R + part) / P).
    #[inline(always)]
    pub fn units_in(&self, span: FracMicros) -> u64 {
        match span.whole.checked_mul(self.refill()) {
            Some(product) if product <= u64::MAX - MAX_UNITS => {
                (product + u64::from(span.part)).div_ceil(self.period.get())
            }
            _ => self.many_units_in(span),
        }
    }

    #[cold]
    fn many_units_in(&self, span: FracMicros) -> u64 {
        let product = u128::from(span.whole) * u128::from(self.refill);
        let product = product + u128::from(span.part);
        let units = product.div_ceil(u128::from(self.period.get()));
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

fn split(units: u64, period: Micros, refill: u32) -> FracMicros {
    let refill = u64::from(refill);
    // A remainder is below the refill, which is a u32.
    match units.checked_mul(period.get()) {
        Some(product) => FracMicros {
            whole: product / refill,
            part: (product % refill) as u32,
        },
        None => {
            let product = u128::from(units) * u128::from(period.get());
            FracMicros {
                whole: u64::try_from(product / u128::from(refill)).unwrap_or(u64::MAX),
                part: (product % u128::from(refill)) as u32,
            }
        }
    }
}

/// Numbers on their way to a [`Limit`]. The refill and the period default to
/// the capacity and the window.
#[derive(Clone, Debug)]
pub struct LimitBuilder {
    algorithm: Algorithm,
    capacity: u64,
    window: Micros,
    refill: Option<u64>,
    period: Option<Micros>,
    max_wait: Option<Micros>,
    shape: bool,
}

impl LimitBuilder {
    /// Units that come back each period.
    pub fn refill(mut self, units: u64) -> Self {
        self.refill = Some(units);
        self
    }

    /// The time in which the refill comes back.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = Some(micros_of(period));
        self
    }

    /// Lets a request that is refused reserve up to this far ahead. Windows and
    /// logs cannot owe: there it says nothing.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(micros_of(max_wait));
        self
    }

    /// Tells an admitted request to wait until what was before it has leaked.
    pub fn shape(mut self, shape: bool) -> Self {
        self.shape = shape;
        self
    }

    /// Checks everything.
    pub fn build(self) -> Result<Limit, LimitError> {
        let Self {
            algorithm,
            capacity,
            window,
            ..
        } = self;
        check_units(Field::Capacity, capacity, algorithm.max_capacity())?;
        check_span(Field::Window, window)?;
        if !algorithm.is_bucket() {
            for (given, field) in [
                (self.refill.is_some(), Field::Refill),
                (self.period.is_some(), Field::Period),
            ] {
                if given {
                    return Err(LimitError::NotABucket { field });
                }
            }
        }
        if self.shape && algorithm != Algorithm::LeakyBucket {
            return Err(LimitError::ShapeOnOther);
        }
        if self.shape && self.max_wait.is_some() {
            return Err(LimitError::ShapeAndWait);
        }
        let refill = self.refill.unwrap_or(capacity);
        check_units(Field::Refill, refill, MAX_UNITS)?;
        let period = self.period.unwrap_or(window);
        check_span(Field::Period, period)?;
        if let Some(max_wait) = self.max_wait {
            check_span(Field::MaxWait, max_wait)?;
        }
        // Both are at most MAX_UNITS by now.
        let (capacity, refill) = (capacity as u32, refill as u32);
        let fill = split(capacity.into(), period, refill);
        if fill.ceil() > MAX_FILL.get() {
            return Err(LimitError::FillTooLong);
        }
        let max_wait = self.max_wait.filter(|_| algorithm.is_bucket());
        let furthest = FracMicros {
            whole: fill.whole + max_wait.unwrap_or_default().get(),
            part: fill.part,
        };
        Ok(Limit {
            algorithm,
            capacity,
            window,
            rate: Rate {
                refill,
                period,
                one_unit: split(1, period, refill),
                fill,
                furthest,
                horizon: Horizon::covering(fill, refill, max_wait.unwrap_or_default()),
                max_wait,
                shape: self.shape,
            },
        })
    }
}

fn check_units(field: Field, given: u64, most: u64) -> Result<(), LimitError> {
    if (1..=most).contains(&given) {
        Ok(())
    } else {
        Err(LimitError::Units { field, given, most })
    }
}

fn check_span(field: Field, given: Micros) -> Result<(), LimitError> {
    if (MIN_SPAN..=MAX_SPAN).contains(&given) && given.get().is_multiple_of(1000) {
        Ok(())
    } else {
        Err(LimitError::Span { field })
    }
}

fn micros_of(span: Duration) -> Micros {
    Micros::new(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// The number that a [`LimitError`] speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
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

impl Field {
    /// The name that rules give it.
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

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why numbers do not make a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A count outside its domain.
    #[error("`{field}` is {given}; allowed is 1 to {most}")]
    Units {
        /// Which count.
        field: Field,
        /// What was given.
        given: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// A span outside its domain.
    #[error("`{field}` must be a whole number of milliseconds from 1ms to 366d")]
    Span {
        /// Which span.
        field: Field,
    },
    /// The capacity divided by the rate.
    #[error(
        "filling from empty (capacity * period / refill) would take more than 3660 days; \
         raise `refill`, or lower `capacity` or `period`"
    )]
    FillTooLong,
    /// A refill or period on an algorithm that has none.
    #[error("`{field}` belongs to token_bucket and leaky_bucket only")]
    NotABucket {
        /// Which of the two.
        field: Field,
    },
    /// Shaping without a queue.
    #[error("`shape: true` belongs to leaky_bucket only")]
    ShapeOnOther,
    /// Two ways to make a request wait.
    #[error("`shape: true` cannot be combined with `on_exceed: wait`")]
    ShapeAndWait,
}
