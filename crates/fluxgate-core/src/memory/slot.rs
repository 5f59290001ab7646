//! A key and its state in 30 bytes.

use crate::algorithm::{Bucket, Cell, Counts, Log, Overhang};
use crate::limit::{Algorithm, FracMicros, Horizon, Limit};
use crate::rules::RuleNumber;
use crate::time::Timestamp;

/// The state of a key, or nothing, in three words.
///
/// | word | from bit 0 up |
/// |---|---|
/// | 0 | instant or window start, 58; fingerprint, 6 |
/// | 1 | fraction or previous count, 30; refill or current count, 30; algorithm, 3 |
/// | 2 | window in ms, or horizon, 6, and overhang, 29; rule, 20; scale, 9 |
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
const WINDOW_BITS: u32 = HORIZON_BITS + Overhang::BITS;
const HORIZON_BITS: u32 = 6;
const ALGORITHM_SHIFT: u32 = 2 * COUNT_BITS;
const INSTANT_MASK: u64 = (1 << INSTANT_BITS) - 1;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const WINDOW_MASK: u64 = (1 << WINDOW_BITS) - 1;
const SCALE_SHIFT: u32 = WINDOW_BITS + RuleNumber::BITS;

const BUCKET: u64 = 1;
const FIXED: u64 = 2;
const SLIDING: u64 = 3;
const LOG: u64 = 4;

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

/// What evicting a key costs: the more, the greater. First comes how much of
/// the quota is used, in quarters; then how long until it is full again, in
/// powers of two; then the used part itself. So keys that are used up alike
/// are told apart by how long that lasts, and keys of one limit by their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Loss(u64);

impl Loss {
    /// Of a quota that is full.
    pub(super) const NONE: Self = Self(0);

    const QUARTER_SHIFT: u32 = 62;
    const LASTS_SHIFT: u32 = 56;

    /// `used` is in 65536ths of the quota, `lasts` in microseconds.
    fn new(used: u64, lasts: u64) -> Self {
        let quarter = (used >> 14).min(3);
        let lasts = u64::from(lasts.max(1).ilog2());
        let used = used.clamp(1, (1 << Self::LASTS_SHIFT) - 1);
        Self(quarter << Self::QUARTER_SHIFT | lasts << Self::LASTS_SHIFT | used)
    }

    /// Whether less than a quarter of the quota is used.
    pub(super) fn is_small(self) -> bool {
        self.0 >> Self::QUARTER_SHIFT == 0
    }
}

/// What every state of a limit has in common, worked out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Imprint {
    /// The algorithm, where a state has it.
    algorithm: u64,
    /// The scale and, of all but a bucket, the window, where a state has them.
    frame: u64,
}

impl Imprint {
    pub(crate) fn new(limit: &Limit) -> Self {
        let (fill, capacity) = (limit.rate().fill().whole, limit.capacity());
        let window = limit.window().get() / 1000;
        let (algorithm, scale, window) = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => (BUCKET, fill, 0),
            Algorithm::FixedWindow => (FIXED, capacity, window),
            Algorithm::SlidingWindow => (SLIDING, capacity, window),
            Algorithm::SlidingLog => (LOG, capacity, window),
        };
        Self {
            algorithm: algorithm << ALGORITHM_SHIFT,
            frame: window | shorten(scale) << SCALE_SHIFT,
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
        Bucket {
            full_at,
            refill,
            horizon,
            overhang,
        }: Bucket,
    ) -> Self {
        let mut state =
            Self::of_numbers(print, rule, imprint, (full_at.whole, full_at.part, refill));
        state.0[2] |= u64::from(horizon.exponent()) | u64::from(overhang.bits()) << HORIZON_BITS;
        state
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

    /// The numbers, if they are of this kind. Those of another kind have another
    /// key, so only two keys of one fingerprint can meet here.
    pub(super) fn cell(self, imprint: Imprint) -> Option<Cell> {
        self.is_of(imprint).then(|| self.numbers())
    }

    /// Whether the numbers are those of a bucket, or counts of this algorithm.
    #[inline]
    pub(super) fn is_of(self, imprint: Imprint) -> bool {
        (self.0[1] ^ imprint.algorithm) >> ALGORITHM_SHIFT == 0
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
            full_at: FracMicros {
                whole: self.0[0] & INSTANT_MASK,
                part: (self.0[1] & COUNT_MASK) as u32,
            },
            refill: (self.0[1] >> COUNT_BITS & COUNT_MASK) as u32,
            horizon: Horizon::from_low_bits(self.0[2]),
            overhang: Overhang::from_low_bits(self.0[2] >> HORIZON_BITS),
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
        self.0[1] >> ALGORITHM_SHIFT == BUCKET
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
        self.means_something_until() <= now.micros()
    }

    fn means_something_until(self) -> u64 {
        let instant = self.0[0] & INSTANT_MASK;
        if self.is_bucket() {
            instant + u64::from(self.0[1] & COUNT_MASK != 0)
        } else {
            let windows = if self.is_sliding() { 2 } else { 1 };
            instant + windows * self.window()
        }
    }

    /// What evicting it at `now` would cost.
    #[inline]
    pub(super) fn loss(self, now: Timestamp) -> Loss {
        let lasts = self.means_something_until().saturating_sub(now.micros());
        if lasts == 0 {
            return Loss::NONE;
        }
        let used = if self.is_bucket() {
            lasts
        } else {
            self.used_of_window(now)
        };
        let scale = lengthen(self.0[2] >> SCALE_SHIFT);
        let part = match used.checked_mul(1 << 16) {
            Some(used) => used / scale,
            None => ((u128::from(used) << 16) / u128::from(scale)) as u64,
        };
        Loss::new(part, lasts)
    }

    /// How many units count at `now`, rounded down.
    fn used_of_window(self, now: Timestamp) -> u64 {
        let (counts, width) = (self.counts(), self.window());
        let gone = now.micros().saturating_sub(counts.start);
        // What fades, and how much of its window is still covered.
        let (whole, fading, covered) = match gone / width {
            0 => (counts.current, counts.previous, width - gone),
            1 if self.is_sliding() => (0, counts.current, 2 * width - gone),
            _ => (0, 0, 0),
        };
        let fading = u128::from(fading) * u128::from(covered) / u128::from(width);
        u64::from(whole) + fading as u64
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
        let latest = Timestamp::MAX.micros() + (1 << Horizon::MAX_EXPONENT);
        let most = MAX_UNITS as u32;
        let bucket = Cell::Bucket(Bucket {
            full_at: FracMicros {
                whole: latest,
                part: most - 1,
            },
            refill: most,
            horizon: Horizon::from_exponent(Horizon::MAX_EXPONENT).unwrap(),
            overhang: Overhang::new(1 << 50),
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
    fn a_state_of_another_kind_does_not_count() {
        let imprint = |algorithm, seconds| {
            let limit = Limit::builder(algorithm, 10, Duration::from_secs(seconds));
            Imprint::new(&limit.build().unwrap())
        };
        let token = imprint(Algorithm::TokenBucket, 1);
        let cell = Cell::Bucket(Bucket {
            full_at: FracMicros { whole: 7, part: 3 },
            refill: 10,
            horizon: Horizon::from_exponent(21).unwrap(),
            overhang: Overhang::NONE,
        });
        let state = State::new(Print::of(1), RuleNumber::NONE, token, &cell);
        assert_eq!(state.cell(token), Some(cell));
        assert_eq!(state.cell(imprint(Algorithm::TokenBucket, 2)), Some(cell));
        assert_eq!(state.cell(imprint(Algorithm::LeakyBucket, 1)), Some(cell));
        assert_eq!(state.cell(imprint(Algorithm::FixedWindow, 1)), None);
        assert_eq!(state.cell(imprint(Algorithm::SlidingWindow, 1)), None);
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

    fn bucket_of(seconds: u64, full_at: u64) -> State {
        let limit = Limit::builder(Algorithm::TokenBucket, 16, Duration::from_secs(seconds))
            .build()
            .unwrap();
        let cell = Cell::Bucket(Bucket {
            full_at: FracMicros {
                whole: full_at,
                part: 0,
            },
            refill: 16,
            horizon: limit.rate().horizon(),
            overhang: Overhang::NONE,
        });
        State::new(Print::of(7), RuleNumber::NONE, Imprint::new(&limit), &cell)
    }

    #[test]
    fn the_loss_of_one_limit_grows_with_its_used_part() {
        let now = Timestamp::from_micros(100_000_000).unwrap();
        let losses = [
            0, 1, 2_000_000, 4_000_000, 8_000_000, 15_000_000, 16_000_000,
        ]
        .map(|used| bucket_of(16, 100_000_000 + used).loss(now));
        assert_eq!(losses[0], Loss::NONE);
        assert!(losses.is_sorted_by(|less, more| less < more), "{losses:?}");
        assert!(losses[2].is_small() && !losses[4].is_small());
    }

    #[test]
    fn of_limits_that_are_used_alike_the_longer_costs_more() {
        let now = Timestamp::from_micros(100_000_000).unwrap();
        let loss = |seconds, used: u64| bucket_of(seconds, 100_000_000 + used).loss(now);
        let used_up = loss(60, 60_000_000);
        assert!(loss(3600, 3_600_000_000) > used_up);
        assert!(loss(3600, 2_700_000_000) > used_up, "three quarters of it");
        assert!(loss(3600, 2_000_000_000) < used_up, "little more than half");
        assert!(loss(86_400, 864_000_000) < used_up, "a hundredth of a day");
    }
}
