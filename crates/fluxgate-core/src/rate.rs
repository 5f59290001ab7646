//! The refill of a bucket, in exact fractions of a microsecond.

use crate::time::Micros;

/// The largest capacity and refill.
pub const MAX_UNITS: u64 = 1_000_000_000;
/// The longest time that a bucket may take to fill from empty: 3,660 days.
pub const MAX_FILL: Micros = Micros::new(3_660 * 86_400_000_000);

/// A number of microseconds with a fraction: `whole + part / R`, where R is the
/// refill of the limit it belongs to and `part < R`.
///
/// The fields are in the order of their weight, so the derived order is the order
/// of the numbers, as long as both have the same R.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FracMicros {
    /// Whole microseconds.
    pub whole: u64,
    /// R-ths of a microsecond on top.
    pub part: u32,
}

impl FracMicros {
    /// Returns whole microseconds, rounded up.
    pub const fn ceil(self) -> u64 {
        self.whole + (self.part > 0) as u64
    }

    /// Returns `units · period / refill`.
    const fn of_units(units: u64, period: Micros, refill: u32) -> Self {
        let refill = refill as u64;
        // A remainder is below the refill, which is a u32.
        match units.checked_mul(period.get()) {
            Some(product) => Self {
                whole: product / refill,
                part: (product % refill) as u32,
            },
            None => {
                let product = units as u128 * period.get() as u128;
                let whole = product / refill as u128;
                Self {
                    whole: if whole > u64::MAX as u128 {
                        u64::MAX
                    } else {
                        whole as u64
                    },
                    part: (product % refill as u128) as u32,
                }
            }
        }
    }
}

/// The furthest from full that a bucket may be: a power of two of microseconds,
/// stored with the bucket's state.
///
/// It is twice the time to fill from empty plus what may be reserved, rounded up.
/// A charge therefore leaves a bucket within half of its horizon or little more, and
/// a bucket beyond its horizon can only be there because a clock went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Horizon(u8);

impl Horizon {
    /// The largest exponent: 2 · 3,660 + 366 days are less than 2^50 µs.
    pub const MAX_EXPONENT: u8 = 50;

    /// Returns the least power of two that is not less than `2·C·P/R + max_wait`.
    const fn covering(fill: FracMicros, refill: u32, max_wait: Micros) -> Self {
        // A power of two covers a fraction if it covers the next whole number.
        let rest = (2 * fill.part as u64).div_ceil(refill as u64);
        let span = 2 * fill.whole + rest + max_wait.get();
        // `0.next_power_of_two()` is 1.
        Self(span.next_power_of_two().ilog2() as u8)
    }

    /// Returns the horizon of `2^exponent` µs, unless it is further than that of any
    /// limit.
    pub const fn from_exponent(exponent: u8) -> Option<Self> {
        if exponent <= Self::MAX_EXPONENT {
            Some(Self(exponent))
        } else {
            None
        }
    }

    /// Reads the exponent from the lowest six bits.
    pub(crate) const fn from_low_bits(bits: u64) -> Self {
        Self((bits & 0x3f) as u8)
    }

    /// Returns the exponent of the power of two.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// Returns the horizon in microseconds.
    pub const fn micros(self) -> u64 {
        1 << self.0
    }
}

/// The refill of a bucket, with everything precomputed that does not depend on the
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Creates the rate of a bucket of `capacity` units. Returns `None` if it would
    /// take longer than [`MAX_FILL`] to fill.
    pub(crate) const fn new(
        capacity: u32,
        refill: u32,
        period: Micros,
        max_wait: Option<Micros>,
        shape: bool,
    ) -> Option<Self> {
        let fill = FracMicros::of_units(capacity as u64, period, refill);
        if fill.ceil() > MAX_FILL.get() {
            return None;
        }
        let reserved = match max_wait {
            Some(max_wait) => max_wait,
            None => Micros::ZERO,
        };
        Some(Self {
            refill,
            period,
            one_unit: FracMicros::of_units(1, period, refill),
            fill,
            furthest: FracMicros {
                whole: fill.whole + reserved.get(),
                part: fill.part,
            },
            horizon: Horizon::covering(fill, refill, reserved),
            max_wait,
            shape,
        })
    }

    /// Returns R: the units per period.
    pub const fn refill(&self) -> u64 {
        self.refill as u64
    }

    /// Returns P: the period.
    pub const fn period(&self) -> Micros {
        self.period
    }

    /// Returns C·P/R: the time to fill from empty.
    pub const fn fill(&self) -> FracMicros {
        self.fill
    }

    /// Returns the furthest from full that a charge may leave the bucket: the time to
    /// fill from empty plus what may be reserved.
    pub const fn furthest(&self) -> FracMicros {
        self.furthest
    }

    /// Returns the horizon of a state that this rate has charged.
    pub const fn horizon(&self) -> Horizon {
        self.horizon
    }

    /// Returns how far ahead a request may reserve, if the rule lets requests wait.
    pub const fn max_wait(&self) -> Option<Micros> {
        self.max_wait
    }

    /// Returns whether an admitted request must wait for the level before it.
    pub const fn shape(&self) -> bool {
        self.shape
    }

    /// Returns n·P/R: the time in which `units` refill. At most C·P/R for the units of
    /// one request, so the sum with any instant fits.
    #[inline]
    pub fn time_of(&self, units: u64) -> FracMicros {
        if units == 1 {
            return self.one_unit;
        }
        FracMicros::of_units(units, self.period, self.refill)
    }

    /// Returns `a + b`.
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

    /// Returns `a − b`, or zero if `b` is greater.
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

    /// Returns the units that refill in `span`, rounded up: ceil((whole·R + part) / P).
    #[inline(always)]
    pub fn units_in(&self, span: FracMicros) -> u64 {
        match span.whole.checked_mul(self.refill()) {
            Some(product) if product <= u64::MAX - MAX_UNITS => {
                (product + u64::from(span.part)).div_ceil(self.period.get())
            }
            _ => self.many_units_in(span),
        }
    }

    /// Returns the units that refill in `span`, rounded down: floor((whole·R + part) / P).
    pub fn whole_units_in(&self, span: FracMicros) -> u64 {
        let product = u128::from(span.whole) * u128::from(self.refill);
        let units = (product + u128::from(span.part)) / u128::from(self.period.get());
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    #[cold]
    fn many_units_in(&self, span: FracMicros) -> u64 {
        let product = u128::from(span.whole) * u128::from(self.refill);
        let product = product + u128::from(span.part);
        let units = product.div_ceil(u128::from(self.period.get()));
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}
