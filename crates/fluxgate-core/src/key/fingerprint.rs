//! Secret fingerprints of short texts. The embedded store keeps them instead of keys.
//!
//! Multilinear hashing: every word of the text is multiplied by a random number
//! of its own, twice as wide, and the upper half of the sum is kept. That is
//! strongly universal: for any two texts, even chosen by an attacker, every value
//! of the pair of fingerprints is equally likely over the choice of the random
//! numbers, and so is every value of any of their bits. Two texts therefore
//! collide in `b` kept bits with probability 2^-b, no more. It takes a third of
//! the instructions of SipHash, and its multiplications do not wait for each
//! other.
//!
//! This holds for pairs. Texts that count up (`user-1`, `user-2`, …) give sums at
//! equal steps, which cluster where a step happens to be near a simple fraction. So
//! the bits are mixed at the end, by a bijection: that removes the steps and leaves
//! the collision probability of any two texts unchanged.
//!
//! Fingerprints would reveal the random numbers, so they never leave the process,
//! which draws new numbers at every start.

use siphasher::sip128::SipHasher13;

use crate::random;

/// Longer texts are hashed with SipHash: the factors for them would not stay in the
/// cache.
const WORDS: usize = 16;

/// The random numbers of a process.
#[derive(Clone, Debug)]
pub struct Fingerprinter {
    start: u128,
    factors: [u128; WORDS],
    longer: SipHasher13,
}

impl Fingerprinter {
    /// Draws new numbers.
    pub fn random() -> Self {
        Self::from_words(random::word)
    }

    fn from_words(mut word: impl FnMut() -> u64) -> Self {
        let mut wide = || u128::from(word()) << 64 | u128::from(word());
        Self {
            start: wide(),
            factors: std::array::from_fn(|_| wide()),
            longer: SipHasher13::new_with_keys(word(), word()),
        }
    }

    /// Returns the fingerprint of a text.
    #[inline]
    pub fn of(&self, text: &[u8]) -> u64 {
        let (words, tail) = text.as_chunks::<8>();
        let factors = self.factors.get(..=words.len());
        let Some((last, factors)) = factors.and_then(<[_]>::split_last) else {
            return self.longer.hash(text).as_u128() as u64;
        };
        let product = |factor: &u128, word: u64| factor.wrapping_mul(word.into());
        let mut sum = self.start;
        for (factor, word) in factors.iter().zip(words) {
            sum = sum.wrapping_add(product(factor, u64::from_le_bytes(*word)));
        }
        sum = sum.wrapping_add(product(last, last_word(tail)));
        mix((sum >> 64) as u64)
    }
}

/// Mixes the bits. Each step is invertible, so no two numbers collide.
#[inline]
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 32).wrapping_mul(0xe9846af9b1a615d);
    bits = (bits ^ bits >> 32).wrapping_mul(0xe9846af9b1a615d);
    bits ^ bits >> 28
}

/// Returns the remaining bytes and their count. Never zero, so a text differs from
/// the same text followed by zeros.
#[inline]
fn last_word(tail: &[u8]) -> u64 {
    let count = tail.len();
    let bytes = if let Some((four, rest)) = tail.split_first_chunk::<4>() {
        let low = u64::from(u32::from_le_bytes(*four));
        rest.iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
            << 32
            | low
    } else {
        tail.iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    bytes | (count as u64 | 0x80) << 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn numbers(seed: u64) -> Fingerprinter {
        let mut count = 0;
        Fingerprinter::from_words(|| {
            count += 1;
            SipHasher13::new_with_keys(seed, 0)
                .hash(&u64::to_le_bytes(count))
                .as_u128() as u64
        })
    }

    /// Computes the same sum the slow way, with the text as numbers of eight bytes.
    fn slow(numbers: &Fingerprinter, text: &[u8]) -> u64 {
        let mut words: Vec<u64> = Vec::new();
        for chunk in text.chunks(8) {
            let digits = chunk.iter().enumerate();
            words.push(digits.map(|(at, byte)| u64::from(*byte) << (8 * at)).sum());
        }
        let count = text.len() % 8;
        let mark = (0x80 + count as u64) << 56;
        match words.last_mut().filter(|_| count > 0) {
            Some(last) => *last += mark,
            None => words.push(mark),
        }
        let terms = words
            .iter()
            .zip(&numbers.factors)
            .map(|(word, factor)| factor.wrapping_mul(u128::from(*word)));
        mix((terms.fold(numbers.start, u128::wrapping_add) >> 64) as u64)
    }

    #[test]
    fn a_fingerprint_is_the_sum_of_the_products() {
        let text: Vec<u8> = (0..=255).map(|byte: u8| byte.wrapping_mul(37)).collect();
        let numbers = numbers(1);
        for length in 0..WORDS * 8 {
            let text = &text[..length];
            assert_eq!(numbers.of(text), slow(&numbers, text), "{length} bytes");
        }
        for length in [WORDS * 8, 200, 256] {
            let text = &text[..length];
            assert_eq!(
                numbers.of(text),
                numbers.longer.hash(text).as_u128() as u64,
                "{length} bytes"
            );
        }
    }

    /// Texts that differ in length, in zeros, in one bit or in their order.
    #[test]
    fn close_texts_have_different_fingerprints_in_every_part() {
        let mut texts: Vec<Vec<u8>> = (0..300).map(|length| vec![0; length]).collect();
        for length in [1, 7, 8, 9, 36, 64, 127, 128] {
            for bit in 0..length * 8 {
                let mut text = vec![0; length];
                text[bit / 8] |= 1 << (bit % 8);
                texts.push(text);
            }
        }
        for seed in 0..20 {
            let numbers = numbers(seed);
            let fingerprints: Vec<u64> = texts.iter().map(|text| numbers.of(text)).collect();
            for part in [0, 10, 20] {
                let parts: HashSet<u64> = fingerprints.iter().map(|it| it >> part).collect();
                assert_eq!(parts.len(), texts.len(), "seed {seed}, from bit {part}");
            }
        }
    }

    /// Of 2,000 random texts in 1,000 parts, about e^-2 of the parts stay empty. Texts
    /// that count up must not leave more gaps.
    #[test]
    fn texts_that_count_up_are_spread_like_any_others() {
        for seed in 0..300 {
            let numbers = numbers(seed);
            let mut parts = [0_u32; 1_000];
            for index in 0..2_000 {
                let fingerprint = numbers.of(format!("f7-{index}").as_bytes());
                parts[((u128::from(fingerprint) * 1_000) >> 64) as usize] += 1;
            }
            let empty = parts.iter().filter(|count| **count == 0).count();
            assert!((90..190).contains(&empty), "seed {seed}: {empty} empty");
            let most = parts.iter().max().unwrap();
            assert!(*most < 16, "seed {seed}: {most} in one");
        }
    }

    /// Each bit of a fingerprint is set for about half of all random numbers.
    #[test]
    fn every_bit_depends_on_the_numbers() {
        let mut set = [0_u32; 64];
        for seed in 0..1_000 {
            let fingerprint = numbers(seed).of(b"api-limits:per-user:user-00000001");
            for (bit, set) in set.iter_mut().enumerate() {
                *set += (fingerprint >> bit & 1) as u32;
            }
        }
        assert!(set.iter().all(|set| (400..600).contains(set)), "{set:?}");
    }
}
