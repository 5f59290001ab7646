//! Holds: charges that are not final.
//!
//! A hold has an id and ends in one of three ways: it is settled with the real cost, it is
//! released, which settles it with 0, or it expires. Its slots are free then; what rates
//! reserved for it stays charged if it expires.

use std::fmt;
use std::str::FromStr;

use crate::random;
use crate::time::Micros;

/// The shortest hold.
pub const MIN_HOLD: Micros = Micros::new(1_000_000);
/// The longest hold.
pub const MAX_HOLD: Micros = Micros::new(86_400_000_000);
/// The time that a hold lives if nothing else is said.
pub const DEFAULT_HOLD: Micros = Micros::new(60_000_000);

/// The id of a hold: 128 random bits, written in base32. A caller that knows it can settle the hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldId(u128);

impl HoldId {
    /// The letters of base32 (RFC 4648).
    const LETTERS: [u8; 32] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    /// The number of letters of an id.
    pub const LENGTH: usize = 26;
    /// The bits that the last letter has and the id does not.
    const PADDING: u32 = Self::LENGTH as u32 * 5 - u128::BITS;

    /// Creates an id that cannot be guessed.
    ///
    /// # Panics
    /// If the operating system provides no random numbers.
    pub fn random() -> Self {
        Self(u128::from_le_bytes(random::secret()))
    }

    /// Creates the id with these bits, for tests and simulations.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns its bits.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Returns its letters.
    fn letters(self) -> [u8; Self::LENGTH] {
        let mut letters = [0; Self::LENGTH];
        for (index, letter) in letters.iter_mut().enumerate() {
            let shift = 123_i32 - 5 * index as i32;
            let bits = match shift {
                0.. => self.0 >> shift,
                _ => self.0 << -shift,
            };
            *letter = Self::LETTERS[(bits & 31) as usize];
        }
        letters
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = self.letters();
        f.write_str(str::from_utf8(&letters).map_err(|_| fmt::Error)?)
    }
}

/// The id lets its holder settle, so logs show only its first letters.
impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HoldId({:.4}…)", self.to_string())
    }
}

impl FromStr for HoldId {
    type Err = ParseHoldIdError;

    /// Reads an id. Lower-case letters count as upper-case ones.
    fn from_str(text: &str) -> Result<Self, ParseHoldIdError> {
        if text.len() != Self::LENGTH {
            return Err(ParseHoldIdError);
        }
        let mut bits = 0_u128;
        for (index, byte) in text.bytes().enumerate() {
            let value = match byte.to_ascii_uppercase() {
                letter @ b'A'..=b'Z' => letter - b'A',
                digit @ b'2'..=b'7' => digit - b'2' + 26,
                _ => return Err(ParseHoldIdError),
            };
            if index + 1 < Self::LENGTH {
                bits = bits << 5 | u128::from(value);
            } else if value & ((1 << Self::PADDING) - 1) != 0 {
                return Err(ParseHoldIdError);
            } else {
                bits = bits << (5 - Self::PADDING) | u128::from(value >> Self::PADDING);
            }
        }
        Ok(Self(bits))
    }
}

/// A text that is not the id of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a hold: 26 letters and digits of base32")]
pub struct ParseHoldIdError;

/// The real cost of a request, known after it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement<'a> {
    /// The reserved cost.
    AsReserved,
    /// The reserved cost, of a request that waits and does not go on. It ends the hold even if
    /// that has expired while the request waited; one that has been settled is still unknown.
    Cancelled,
    /// One cost for every rule.
    Cost(u64),
    /// The cost of the rules that count an attribute (`cost: attr:NAME`), by its name. Other
    /// rules keep the reserved cost.
    Attributes(&'a [(&'a str, u64)]),
}

impl Settlement<'_> {
    /// Settles with 0.
    pub const RELEASE: Self = Self::Cost(0);

    /// Returns the cost for a rule that reserved this many units, and that counts this
    /// attribute if it counts any.
    pub fn cost_of(&self, reserved: u64, attribute: Option<&str>) -> u64 {
        match *self {
            Self::AsReserved | Self::Cancelled => reserved,
            Self::Cost(cost) => cost,
            Self::Attributes(costs) => {
                let cost =
                    attribute.and_then(|name| costs.iter().find(|(known, _)| *known == name));
                cost.map_or(reserved, |(_, cost)| *cost)
            }
        }
    }
}

/// What a settlement charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The units that are charged now: the cost without what did not fit. If the rules have
    /// different costs, the largest.
    pub charged: u64,
    /// The units by which the cost exceeded what the band with the least room could owe.
    pub uncharged: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = HoldId::from_bits(bits);
            let text = id.to_string();
            assert_eq!(text.len(), HoldId::LENGTH);
            assert_eq!(text.parse(), Ok(id));
            assert_eq!(text.to_lowercase().parse(), Ok(id));
        }
        assert_eq!(HoldId::from_bits(0).to_string(), "A".repeat(26));
        // The bytes 01 23 45 67 89 ab cd ef, twice.
        let known = HoldId::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(known.to_string(), "AERUKZ4JVPG66AJDIVTYTK6N54");
    }

    #[test]
    fn other_texts_are_refused() {
        let id = HoldId::from_bits(7).to_string();
        for text in ["", "A", &id[1..], &format!("{id}A"), &id.replace('A', "1")] {
            assert_eq!(text.parse::<HoldId>(), Err(ParseHoldIdError), "{text}");
        }
        // The last letter has two bits too many.
        let longer = format!("{}{}", "A".repeat(25), "B");
        assert_eq!(longer.parse::<HoldId>(), Err(ParseHoldIdError));
    }

    #[test]
    fn ids_differ() {
        assert_ne!(HoldId::random(), HoldId::random());
    }

    #[test]
    fn logs_do_not_contain_the_id() {
        let id = HoldId::random();
        assert!(!format!("{id:?}").contains(&id.to_string()));
    }
}
