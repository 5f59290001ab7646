//! How far reservations lie past the instant of a bucket.

use crate::limit::FracMicros;

/// A span of whole microseconds in 29 bits: exact below 2^24 µs (16 s), rounded up
/// above. Rounding up returns fewer units, never more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhang(u32);

impl Overhang {
    /// No reservation lies past `full_at`.
    pub const NONE: Self = Self(0);
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
        Self::new(self.micros().saturating_sub(cost.whole))
    }

    /// Returns the overhang when the bucket's instant moves back by `span`.
    pub(super) fn before(self, span: FracMicros) -> Self {
        Self::new(self.micros() + span.ceil())
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
}
