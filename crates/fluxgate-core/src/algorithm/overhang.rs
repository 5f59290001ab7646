//! How far reservations lie past the instant of a bucket.

use crate::limit::FracMicros;

/// A span of whole microseconds in 29 bits: exact below 2^24 µs (16 s), rounded up
/// above. Rounding up returns fewer units, never more.
///
/// It also says whether there is any reservation at all. One that lies at `full_at` itself is a
/// span of zero that differs from [`Overhang::NONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhang(u32);

impl Overhang {
    /// No request had to wait since the bucket was last full.
    pub const NONE: Self = Self(0);
    /// A request has to wait, or had to, and none lies past `full_at`. Zero halved once.
    const AT_FULL: Self = Self(1 << Self::MANTISSA_BITS);
    /// The number of bits.
    pub const BITS: u32 = 29;

    const MANTISSA_BITS: u32 = 24;

    /// Creates a span, rounded up.
    pub const fn new(micros: u64) -> Self {
        let mut mantissa = micros;
        let mut exponent = 0;
        while mantissa >> Self::MANTISSA_BITS > 0 {
            mantissa = mantissa.div_ceil(2);
            exponent += 1;
        }
        Self(exponent << Self::MANTISSA_BITS | mantissa as u32)
    }

    /// Returns the span with these bits, unless no span has them.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits >> Self::BITS == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Reads a span from the lowest 29 bits.
    pub(crate) const fn from_low_bits(bits: u64) -> Self {
        Self(bits as u32 & ((1 << Self::BITS) - 1))
    }

    /// Returns the exponent and the mantissa.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the span in microseconds.
    pub const fn micros(self) -> u64 {
        let mantissa = self.0 & ((1 << Self::MANTISSA_BITS) - 1);
        (mantissa as u64) << (self.0 >> Self::MANTISSA_BITS)
    }

    /// Returns what is left when the bucket's instant moves on by `cost`.
    #[inline]
    pub(super) fn after(self, cost: FracMicros) -> Self {
        if self == Self::NONE {
            return self;
        }
        match self.micros().saturating_sub(cost.whole) {
            0 => Self::AT_FULL,
            left => Self::new(left),
        }
    }

    /// Returns the overhang when the bucket's instant moves back by `span`.
    pub(super) fn before(self, span: FracMicros) -> Self {
        match self.micros() + span.ceil() {
            0 => self,
            sum => Self::new(sum),
        }
    }

    /// Returns what is left after the bucket was full for so many microseconds.
    #[inline]
    pub(super) fn after_idle(self, micros: u64) -> Self {
        if self == Self::NONE || micros == 0 {
            return self;
        }
        Self::new(self.micros().saturating_sub(micros))
    }

    /// Returns the overhang when a request that has to wait moves the bucket's instant.
    #[inline]
    pub(super) fn reserved(self) -> Self {
        if self == Self::NONE {
            Self::AT_FULL
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overhang_is_exact_below_16_seconds_and_never_less_than_it_was() {
        for micros in (0..50).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
            let overhang = Overhang::new(micros);
            assert_eq!(Overhang::from_bits(overhang.bits()), Some(overhang));
            let kept = overhang.micros();
            assert!(kept >= micros && kept - micros <= micros >> 23, "{micros}");
            assert!(kept == micros || micros >= 1 << 24, "{micros}");
        }
        assert_eq!(Overhang::from_bits(1 << Overhang::BITS), None);
    }

    #[test]
    fn an_overhang_of_nothing_tells_of_reservations_until_the_bucket_is_full() {
        let micros = |whole| FracMicros { whole, part: 0 };
        let reserved = Overhang::NONE.reserved();
        assert_eq!((reserved.micros(), reserved == Overhang::NONE), (0, false));
        assert_eq!(Overhang::from_bits(reserved.bits()), Some(reserved));
        assert_eq!(reserved.after(micros(5)), reserved);
        assert_eq!(reserved.before(micros(5)).after(micros(9)), reserved);
        assert_eq!(reserved.after_idle(0), reserved);
        assert_eq!(reserved.after_idle(1), Overhang::NONE);
        assert_eq!(Overhang::NONE.after(micros(5)), Overhang::NONE);
    }
}
