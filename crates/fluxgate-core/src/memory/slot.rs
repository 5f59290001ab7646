//! A key and its state in 30 bytes.

use crate::algorithm::{Bucket, Cell, Counts, Log};
use crate::limit::{Algorithm, Fine, Limit};
use crate::rules::RuleNumber;
use crate::time::Timestamp;

/// The state of a key, or nothing, in three words.
///
/// | word | from bit 0 up |
/// |---|---|
/// | 0 | instant or window start, 58; fingerprint, 6 |
/// | 1 | fraction or previous count, 30; refill or current count, 30; algorithm, 3 |
/// | 2 | window in ms, 35; rule, 20; scale, 9 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) [u64; 3]);

/// A key and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// 48 bits of the fingerprint.
    pub(super) tag: u64,
    pub(super) state: State,
}

const TAG_BITS: u32 = 48;
const INSTANT_BITS: u32 = 58;
const COUNT_BITS: u32 = 30;
const WINDOW_BITS: u32 = 35;
const ALGORITHM_SHIFT: u32 = 2 * COUNT_BITS;
const INSTANT_MASK: u64 = (1 << INSTANT_BITS) - 1;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const WINDOW_MASK: u64 = (1 << WINDOW_BITS) - 1;
const SCALE_SHIFT: u32 = WINDOW_BITS + RuleNumber::BITS;

const SLIDING: u64 = 4;
const LOG: u64 = 5;

/// What a line keeps of a fingerprint: 54 bits, besides those that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    tag: u64,
    /// Where [`State`] has it: in the uppermost six bits.
    rest: u64,
}

impl Print {
    /// How many bits it has.
    pub(super) const BITS: u32 = TAG_BITS + u64::BITS - INSTANT_BITS;

    /// The uppermost 54 bits.
    pub(super) fn of(fingerprint: u64) -> Self {
        Self {
            tag: fingerprint >> (64 - TAG_BITS),
            rest: fingerprint << TAG_BITS & (u64::MAX << INSTANT_BITS),
        }
    }

    pub(super) fn tag(self) -> u64 {
        self.tag
    }

    /// Which line of a shard the key belongs to, as a part of 2^32.
    pub(super) fn home(self) -> u32 {
        (self.tag >> 16) as u32
    }

    /// All its bits, in one number.
    pub(super) fn bits(self) -> u64 {
        self.tag | self.rest >> INSTANT_BITS << TAG_BITS
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            tag: bits & ((1 << TAG_BITS) - 1),
            rest: bits >> TAG_BITS << INSTANT_BITS,
        }
    }
}

impl Slot {
    pub(super) fn print(&self) -> Print {
        Print {
            tag: self.tag,
            rest: self.state.0[0] & (u64::MAX << INSTANT_BITS),
        }
    }
}

/// How much is lost when a slot is forgotten: the used part of its quota, in
/// 65536ths. Nothing is lost of what is full again.
pub(super) type Loss = u64;

/// What every state of a limit has in common, worked out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Imprint {
    /// The algorithm, where a state has it.
    algorithm: u64,
    /// The window and the scale, where a state has them.
    frame: u64,
}

impl Imprint {
    pub(crate) fn new(limit: &Limit) -> Self {
        let (algorithm, scale) = match limit.algorithm() {
            Algorithm::TokenBucket => (1, limit.rate().fill().whole),
            Algorithm::LeakyBucket => (2, limit.rate().fill().whole),
            Algorithm::FixedWindow => (3, limit.capacity()),
            Algorithm::SlidingWindow => (SLIDING, limit.capacity()),
            Algorithm::SlidingLog => (LOG, limit.capacity()),
        };
        Self {
            algorithm: algorithm << ALGORITHM_SHIFT,
            frame: (limit.window().get() / 1000) | shorten(scale) << SCALE_SHIFT,
        }
    }
}

impl State {
    pub(super) const EMPTY: Self = Self([0; 3]);

    pub(super) fn new(print: Print, rule: RuleNumber, imprint: Imprint, cell: &Cell) -> Self {
        match *cell {
            Cell::Bucket(bucket) => Self::of_bucket(print, rule, imprint, bucket),
            Cell::Counts(counts) => Self::of_counts(print, rule, imprint, counts),
        }
    }

    #[inline]
    pub(super) fn of_bucket(
        print: Print,
        rule: RuleNumber,
        imprint: Imprint,
        Bucket { full_at, refill }: Bucket,
    ) -> Self {
        Self::of_numbers(print, rule, imprint, (full_at.whole, full_at.part, refill))
    }

    pub(super) fn of_counts(
        print: Print,
        rule: RuleNumber,
        imprint: Imprint,
        Counts {
            start,
            previous,
            current,
        }: Counts,
    ) -> Self {
        Self::of_numbers(print, rule, imprint, (start, previous, current))
    }

    #[inline]
    fn of_numbers(
        print: Print,
        rule: RuleNumber,
        imprint: Imprint,
        (instant, first, second): (u64, u32, u32),
    ) -> Self {
        Self([
            instant | print.rest,
            u64::from(first) | u64::from(second) << COUNT_BITS | imprint.algorithm,
            imprint.frame | u64::from(rule.get()) << WINDOW_BITS,
        ])
    }

    /// Stands for a log: when its newest event was, and how many units it has.
    pub(super) fn of_log(print: Print, rule: RuleNumber, imprint: Imprint, log: &Log) -> Self {
        let counts = Counts {
            start: log.newest(),
            previous: 0,
            // A log has at most MAX_LOG_UNITS.
            current: log.units() as u32,
        };
        Self::of_counts(print, rule, imprint, counts)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0[1] >> ALGORITHM_SHIFT == 0
    }

    /// Whether this is the state of a key with this print, the tag apart.
    pub(super) fn has(self, print: Print) -> bool {
        ((self.0[0] ^ print.rest) >> INSTANT_BITS == 0) & !self.is_empty()
    }

    pub(super) fn rule(self) -> u32 {
        (self.0[2] >> WINDOW_BITS) as u32 & ((1 << RuleNumber::BITS) - 1)
    }

    /// The numbers, if they were made under this algorithm and window.
    pub(super) fn cell(self, imprint: Imprint) -> Option<Cell> {
        self.is_of(imprint).then(|| self.numbers())
    }

    /// Whether the numbers were made under this algorithm and window.
    #[inline]
    pub(super) fn is_of(self, imprint: Imprint) -> bool {
        let other_window = (self.0[2] ^ imprint.frame) & WINDOW_MASK != 0;
        let other_algorithm = (self.0[1] ^ imprint.algorithm) >> ALGORITHM_SHIFT != 0;
        !(other_window | other_algorithm)
    }

    fn numbers(self) -> Cell {
        if self.is_bucket() {
            Cell::Bucket(self.bucket())
        } else {
            Cell::Counts(self.counts())
        }
    }

    /// The numbers as those of a bucket.
    #[inline]
    pub(super) fn bucket(self) -> Bucket {
        Bucket {
            full_at: Fine {
                whole: self.0[0] & INSTANT_MASK,
                part: (self.0[1] & COUNT_MASK) as u32,
            },
            refill: (self.0[1] >> COUNT_BITS & COUNT_MASK) as u32,
        }
    }

    /// The numbers as those of a counting window, or of what stands for a log.
    pub(super) fn counts(self) -> Counts {
        Counts {
            start: self.0[0] & INSTANT_MASK,
            previous: (self.0[1] & COUNT_MASK) as u32,
            current: (self.0[1] >> COUNT_BITS & COUNT_MASK) as u32,
        }
    }

    fn is_bucket(self) -> bool {
        self.0[1] >> ALGORITHM_SHIFT <= 2
    }

    fn is_sliding(self) -> bool {
        self.0[1] >> ALGORITHM_SHIFT == SLIDING
    }

    /// Whether this only stands for a log, which is kept elsewhere.
    pub(super) fn is_log(self) -> bool {
        self.0[1] >> ALGORITHM_SHIFT == LOG
    }

    fn window(self) -> u64 {
        (self.0[2] & WINDOW_MASK) * 1000
    }

    /// Whether nothing is lost if it is forgotten at `now`.
    pub(super) fn is_spent(self, now: Timestamp) -> bool {
        let means_something_until = match self.numbers() {
            Cell::Bucket(bucket) => bucket.full_at.ceil(),
            Cell::Counts(counts) => {
                let windows = if self.is_sliding() { 2 } else { 1 };
                counts.start + windows * self.window()
            }
        };
        means_something_until <= now.micros()
    }

    /// What forgetting it at `now` would cost.
    pub(super) fn loss(self, now: Timestamp) -> Loss {
        let now = now.micros();
        let used = match self.numbers() {
            Cell::Bucket(bucket) => bucket.full_at.ceil().saturating_sub(now),
            Cell::Counts(counts) => {
                let width = self.window();
                let gone = now.saturating_sub(counts.start);
                // What fades, and how much of its window is still covered.
                let (whole, fading, covered) = match gone / width {
                    0 => (counts.current, counts.previous, width - gone),
                    1 if self.is_sliding() => (0, counts.current, 2 * width - gone),
                    _ => (0, 0, 0),
                };
                let fading = u128::from(fading) * u128::from(covered) / u128::from(width);
                u64::from(whole) + fading as u64
            }
        };
        if used == 0 {
            return 0;
        }
        let scale = lengthen(self.0[2] >> SCALE_SHIFT);
        (((u128::from(used) << 16) / u128::from(scale)) as Loss).max(1)
    }
}

const MANTISSA_BITS: u32 = 3;

/// Keeps the place of the highest bit and the three bits below it: enough to
/// compare what is lost, within an eighth.
fn shorten(number: u64) -> u64 {
    let number = number.max(1);
    let exponent = number.ilog2();
    let shift = 64 - MANTISSA_BITS;
    let mantissa = (number << (63 - exponent) << 1) >> shift;
    u64::from(exponent) << MANTISSA_BITS | mantissa
}

fn lengthen(short: u64) -> u64 {
    let exponent = (short >> MANTISSA_BITS) as u32;
    let mantissa = short & ((1 << MANTISSA_BITS) - 1);
    let number = u128::from(1 << MANTISSA_BITS | mantissa) << exponent >> MANTISSA_BITS;
    (number as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{MAX_SPAN, MAX_UNITS};
    use std::time::Duration;

    fn limit(algorithm: Algorithm) -> Limit {
        let limit = Limit::builder(algorithm, MAX_UNITS, MAX_SPAN.as_duration());
        limit.build().unwrap()
    }

    #[test]
    fn a_state_holds_the_largest_numbers_of_the_domain() {
        let print = Print::of(u64::MAX);
        let latest = Timestamp::MAX.micros() + 4_026 * 86_400_000_000;
        let most = MAX_UNITS as u32;
        let bucket = Cell::Bucket(Bucket {
            full_at: Fine {
                whole: latest,
                part: most - 1,
            },
            refill: most,
        });
        let counts = Cell::Counts(Counts {
            start: Timestamp::MAX.micros(),
            previous: most,
            current: most,
        });
        for (algorithm, cell) in [
            (Algorithm::TokenBucket, bucket),
            (Algorithm::LeakyBucket, bucket),
            (Algorithm::FixedWindow, counts),
            (Algorithm::SlidingWindow, counts),
        ] {
            let imprint = Imprint::new(&limit(algorithm));
            let state = State::new(print, RuleNumber::NONE, imprint, &cell);
            assert_eq!(state.cell(imprint), Some(cell));
            assert!(state.has(print) && !state.has(Print::of(u64::MAX >> 54)));
            assert!(!state.is_empty());
        }
        assert!(State::EMPTY.is_empty() && !State::EMPTY.has(Print::of(0)));
    }

    #[test]
    fn a_state_of_another_algorithm_or_window_does_not_count() {
        let imprint = |algorithm, seconds| {
            let limit = Limit::builder(algorithm, 10, Duration::from_secs(seconds));
            Imprint::new(&limit.build().unwrap())
        };
        let token = imprint(Algorithm::TokenBucket, 1);
        let cell = Cell::Bucket(Bucket {
            full_at: Fine { whole: 7, part: 3 },
            refill: 10,
        });
        let state = State::new(Print::of(1), RuleNumber::NONE, token, &cell);
        assert_eq!(state.cell(token), Some(cell));
        assert_eq!(state.cell(imprint(Algorithm::TokenBucket, 2)), None);
        assert_eq!(state.cell(imprint(Algorithm::LeakyBucket, 1)), None);
        assert_eq!(state.cell(imprint(Algorithm::FixedWindow, 1)), None);
    }

    #[test]
    fn shortened_numbers_are_within_an_eighth() {
        for number in (0..63).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3]) {
            let back = lengthen(shorten(number));
            assert!(
                back <= number && number - back <= number / 8,
                "{number} {back}"
            );
        }
    }

    #[test]
    fn loss_is_the_used_part() {
        let limit = Limit::builder(Algorithm::TokenBucket, 16, Duration::from_secs(16))
            .build()
            .unwrap();
        let slot = |whole| {
            let cell = Cell::Bucket(Bucket {
                full_at: Fine { whole, part: 0 },
                refill: 16,
            });
            State::new(Print::of(7), RuleNumber::NONE, Imprint::new(&limit), &cell)
        };
        let now = Timestamp::from_micros(100_000_000).unwrap();
        assert_eq!(slot(100_000_000).loss(now), 0);
        assert_eq!(slot(100_000_001).loss(now), 1);
        let half = slot(108_000_000).loss(now);
        assert!((32_768..37_000).contains(&half), "{half}");
        assert!(slot(116_000_000).loss(now) > half);
    }
}
