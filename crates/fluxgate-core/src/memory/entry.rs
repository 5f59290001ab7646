//! A key and its state in 30 bytes.

use super::list::List;
use crate::algorithm::{Bucket, Cell, Counts, Overhang, end_of};
use crate::band::Band;
use crate::key::RuleNumber;
use crate::limit::{Algorithm, FracMicros, Horizon, Limit, Scale};
use crate::time::Timestamp;

/// The state of a key, or none, in three words.
///
/// | word | from bit 0 up |
/// |---|---|
/// | 0 | instant or window start, 58; fingerprint, 6 |
/// | 1 | fraction or previous count, 30; refill or current count, 31; kind, 3 |
/// | 2 | window in ms, or horizon, 6, and overhang, 29; rule, 20; scale, 9 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) [u64; 3]);

/// A key and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// 48 bits of the fingerprint.
    pub(super) tag: u64,
    pub(super) state: State,
}

const TAG_BITS: u32 = 48;
const INSTANT_BITS: u32 = 58;
/// The bits of a capacity. A count may be twice as large: one more bit of the current one
/// follows, and that of the previous one is in the kind.
const COUNT_BITS: u32 = 30;
const WINDOW_BITS: u32 = HORIZON_BITS + Overhang::BITS;
const HORIZON_BITS: u32 = 6;
const KIND_SHIFT: u32 = 2 * COUNT_BITS + 1;
pub(super) const INSTANT_MASK: u64 = (1 << INSTANT_BITS) - 1;
pub(super) const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const CURRENT_MASK: u64 = (1 << (COUNT_BITS + 1)) - 1;
const TOP_BIT: u32 = 63;
const WINDOW_MASK: u64 = (1 << WINDOW_BITS) - 1;
const SCALE_SHIFT: u32 = WINDOW_BITS + RuleNumber::BITS;

const BUCKET: u64 = 1;
const FIXED: u64 = 2;
/// The third bit of this kind is the uppermost one of the previous count.
const SLIDING: u64 = 3;
const LIST: u64 = 4;
const CELL_KINDS: u64 = 3;

/// The part of a fingerprint that a line stores: 54 bits, besides those that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    tag: u64,
    /// Six bits, at the position that they have in [`State`]: the uppermost.
    rest: u64,
}

impl Fingerprint {
    /// The number of bits.
    pub(super) const BITS: u32 = TAG_BITS + u64::BITS - INSTANT_BITS;

    /// Returns the uppermost 54 bits.
    pub(super) fn of(hash: u64) -> Self {
        Self {
            tag: hash >> (64 - TAG_BITS),
            rest: hash << TAG_BITS & (u64::MAX << INSTANT_BITS),
        }
    }

    pub(super) fn tag(self) -> u64 {
        self.tag
    }

    /// Returns the line of a shard that the key belongs to, as a fraction of 2^32.
    pub(super) fn home(self) -> u32 {
        (self.tag >> 16) as u32
    }

    /// Returns all bits as one number.
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

impl Entry {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            tag: self.tag,
            rest: self.state.0[0] & (u64::MAX << INSTANT_BITS),
        }
    }
}

/// What evicting a key costs. The first criterion is the used part of the quota, in
/// quarters; then the time until it is full again, in powers of two; then the used part
/// itself. So keys with equal use compare by how long it lasts, and keys of one limit by
/// their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionCost(u64);

impl EvictionCost {
    /// The cost of a full quota.
    pub(super) const NONE: Self = Self(0);

    const QUARTER_SHIFT: u32 = 62;
    const LASTS_SHIFT: u32 = 56;

    /// Creates the cost of `used` 65536ths of the quota, for `lasts` microseconds.
    fn new(used: u64, lasts: u64) -> Self {
        let quarter = (used >> 14).min(3);
        let lasts = u64::from(lasts.max(1).ilog2());
        let used = used.clamp(1, (1 << Self::LASTS_SHIFT) - 1);
        Self(quarter << Self::QUARTER_SHIFT | lasts << Self::LASTS_SHIFT | used)
    }

    /// Returns whether less than a quarter of the quota is used.
    pub(super) fn is_small(self) -> bool {
        self.0 >> Self::QUARTER_SHIFT == 0
    }
}

/// The bits that all states of a limit share, at their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitBits {
    /// The kind of state that the algorithm has.
    kind: u64,
    /// The scale and, except for a bucket, the window.
    frame: u64,
}

impl LimitBits {
    #[inline]
    pub(super) fn of(limit: &Limit) -> Self {
        Self::with_window(limit, limit.window().get() / 1000)
    }

    /// Returns the bits of counts in the window that contains `start`.
    pub(super) fn of_counts(limit: &Limit, start: u64) -> Self {
        match limit.windows() {
            Some(_) => Self::with_window(limit, (end_of(limit, start) - start) / 1000),
            None => Self::of(limit),
        }
    }

    #[inline]
    fn with_window(limit: &Limit, millis: u64) -> Self {
        let (kind, window) = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => (BUCKET, 0),
            Algorithm::FixedWindow => (FIXED, millis),
            Algorithm::SlidingWindow => (SLIDING, millis),
            Algorithm::SlidingLog => (LIST, millis),
            // Slots have an end of their own.
            Algorithm::Concurrency => (LIST, 0),
        };
        Self {
            kind: kind << KIND_SHIFT,
            frame: window | u64::from(limit.scale().bits()) << SCALE_SHIFT,
        }
    }
}

/// A counter: one band of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) fingerprint: Fingerprint,
    pub(super) shard: u32,
    pub(super) is_list: bool,
    pub(super) rule: RuleNumber,
}

impl Key {
    /// Returns the key with this state.
    pub(super) fn entry(&self, band: &Band, cell: &Cell) -> Entry {
        let limit = band.limit();
        self.with(match *cell {
            Cell::Bucket(bucket) => State::of_bucket(self, LimitBits::of(limit), bucket),
            Cell::Counts(counts) => {
                State::of_counts(self, LimitBits::of_counts(limit, counts.start), counts)
            }
        })
    }

    /// Returns the key with the stand-in for its list: the time of its newest event or the end of
    /// its last entry, and its units.
    pub(super) fn entry_of_list(&self, band: &Band, list: &List) -> Entry {
        let counts = Counts {
            start: list.latest(),
            previous: 0,
            current: list.units().min(CURRENT_MASK) as u32,
        };
        self.with(State::of_counts(self, LimitBits::of(band.limit()), counts))
    }

    fn with(&self, state: State) -> Entry {
        let tag = self.fingerprint.tag();
        Entry { tag, state }
    }
}

impl State {
    pub(super) const EMPTY: Self = Self([0; 3]);

    #[inline]
    pub(super) fn of_bucket(key: &Key, bits: LimitBits, bucket: Bucket) -> Self {
        let FracMicros { whole, part } = bucket.full_at;
        let mut state = Self::of_numbers(key, bits, (whole, part, bucket.refill));
        let (horizon, overhang) = (bucket.horizon.exponent(), bucket.overhang.bits());
        state.0[2] |= u64::from(horizon) | u64::from(overhang) << HORIZON_BITS;
        state
    }

    pub(super) fn of_counts(key: &Key, bits: LimitBits, counts: Counts) -> Self {
        Self::of_numbers(key, bits, (counts.start, counts.previous, counts.current))
    }

    #[inline]
    fn of_numbers(key: &Key, bits: LimitBits, (instant, first, second): (u64, u32, u32)) -> Self {
        let first = u64::from(first);
        // Only a previous count has the bit.
        let first = first & COUNT_MASK | first >> COUNT_BITS << TOP_BIT;
        Self([
            instant | key.fingerprint.rest,
            first | u64::from(second) << COUNT_BITS | bits.kind,
            bits.frame | u64::from(key.rule.get()) << WINDOW_BITS,
        ])
    }

    pub(super) fn is_empty(self) -> bool {
        self.0[1] >> KIND_SHIFT == 0
    }

    /// Returns whether this is the state of a key with this fingerprint, except for the tag.
    pub(super) fn has(self, fingerprint: Fingerprint) -> bool {
        ((self.0[0] ^ fingerprint.rest) >> INSTANT_BITS == 0) & !self.is_empty()
    }

    pub(super) fn rule(self) -> u32 {
        (self.0[2] >> WINDOW_BITS) as u32 & ((1 << RuleNumber::BITS) - 1)
    }

    /// Returns the state, if it is of this algorithm. That of another algorithm has another
    /// key, so it differs only if two keys have the same fingerprint.
    pub(super) fn cell(self, bits: LimitBits) -> Option<Cell> {
        self.is_of(bits).then(|| self.numbers())
    }

    /// Returns whether this is the state of a bucket, or counts of this algorithm.
    #[inline]
    pub(super) fn is_of(self, bits: LimitBits) -> bool {
        (self.0[1] ^ bits.kind) >> KIND_SHIFT & CELL_KINDS == 0
    }

    fn numbers(self) -> Cell {
        if self.is_bucket() {
            Cell::Bucket(self.bucket())
        } else {
            Cell::Counts(self.counts())
        }
    }

    /// Returns the numbers as those of a bucket.
    #[inline]
    pub(super) fn bucket(self) -> Bucket {
        Bucket {
            full_at: FracMicros {
                whole: self.0[0] & INSTANT_MASK,
                part: (self.0[1] & COUNT_MASK) as u32,
            },
            refill: (self.0[1] >> COUNT_BITS & CURRENT_MASK) as u32,
            horizon: Horizon::from_low_bits(self.0[2]),
            overhang: Overhang::from_low_bits(self.0[2] >> HORIZON_BITS),
        }
    }

    /// Returns the numbers as those of a counting window, or of the stand-in for a list.
    pub(super) fn counts(self) -> Counts {
        let uppermost = u64::from(self.is_sliding()) & self.0[1] >> TOP_BIT;
        Counts {
            start: self.0[0] & INSTANT_MASK,
            previous: (self.0[1] & COUNT_MASK | uppermost << COUNT_BITS) as u32,
            current: (self.0[1] >> COUNT_BITS & CURRENT_MASK) as u32,
        }
    }

    fn is_bucket(self) -> bool {
        self.0[1] >> KIND_SHIFT == BUCKET
    }

    fn is_sliding(self) -> bool {
        self.0[1] >> KIND_SHIFT & CELL_KINDS == SLIDING
    }

    /// Returns whether this is the stand-in for a list, which is stored elsewhere.
    pub(super) fn is_list(self) -> bool {
        self.0[1] >> KIND_SHIFT == LIST
    }

    fn window(self) -> u64 {
        (self.0[2] & WINDOW_MASK) * 1000
    }

    /// Returns whether nothing is lost if it is deleted at `now`.
    pub(super) fn is_expired(self, now: Timestamp) -> bool {
        self.expires_at() <= now.micros()
    }

    fn expires_at(self) -> u64 {
        let instant = self.0[0] & INSTANT_MASK;
        if self.is_bucket() {
            instant + u64::from(self.0[1] & COUNT_MASK != 0)
        } else {
            let windows = if self.is_sliding() { 2 } else { 1 };
            instant + windows * self.window()
        }
    }

    /// Returns what evicting it at `now` costs.
    #[inline]
    pub(super) fn eviction_cost(self, now: Timestamp) -> EvictionCost {
        let lasts = self.expires_at().saturating_sub(now.micros());
        if lasts == 0 {
            return EvictionCost::NONE;
        }
        let used = if self.is_bucket() {
            lasts
        } else {
            self.used_of_window(now)
        };
        // The scale has nine bits.
        let scale = Scale::from_bits((self.0[2] >> SCALE_SHIFT) as u16).get();
        let part = match used.checked_mul(1 << 16) {
            Some(used) => used / scale,
            None => ((u128::from(used) << 16) / u128::from(scale)) as u64,
        };
        EvictionCost::new(part, lasts)
    }

    /// Returns the units that count at `now`, rounded down.
    fn used_of_window(self, now: Timestamp) -> u64 {
        let (counts, width) = (self.counts(), self.window());
        if width == 0 {
            // The slots of a limit.
            return counts.current.into();
        }
        let elapsed = now.micros().saturating_sub(counts.start);
        // The count that fades, and how much of its window is still covered.
        let (whole, fading, covered) = match elapsed / width {
            0 => (counts.current, counts.previous, width - elapsed),
            1 if self.is_sliding() => (0, counts.current, 2 * width - elapsed),
            _ => (0, 0, 0),
        };
        let fading = u128::from(fading) * u128::from(covered) / u128::from(width);
        u64::from(whole) + fading as u64
    }
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

    fn state_of(fingerprint: Fingerprint, bits: LimitBits, cell: &Cell) -> State {
        let key = Key {
            fingerprint,
            shard: 0,
            is_list: false,
            rule: RuleNumber::NONE,
        };
        match *cell {
            Cell::Bucket(bucket) => State::of_bucket(&key, bits, bucket),
            Cell::Counts(counts) => State::of_counts(&key, bits, counts),
        }
    }

    #[test]
    fn a_state_holds_the_largest_numbers() {
        let fingerprint = Fingerprint::of(u64::MAX);
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
            previous: 0,
            current: 2 * most,
        });
        let sliding = Cell::Counts(Counts {
            start: Timestamp::MAX.micros(),
            previous: 2 * most,
            current: 2 * most,
        });
        for (algorithm, cell) in [
            (Algorithm::TokenBucket, bucket),
            (Algorithm::LeakyBucket, bucket),
            (Algorithm::FixedWindow, counts),
            (Algorithm::SlidingWindow, sliding),
        ] {
            let bits = LimitBits::of(&limit(algorithm));
            let state = state_of(fingerprint, bits, &cell);
            assert_eq!(state.cell(bits), Some(cell));
            assert!(state.has(fingerprint) && !state.has(Fingerprint::of(u64::MAX >> 54)));
            assert!(!state.is_empty());
        }
        assert!(State::EMPTY.is_empty() && !State::EMPTY.has(Fingerprint::of(0)));
    }

    #[test]
    fn a_state_of_another_algorithm_is_ignored() {
        let bits_of = |algorithm, seconds| {
            let limit = Limit::builder(algorithm, 10, Duration::from_secs(seconds));
            LimitBits::of(&limit.build().unwrap())
        };
        let token = bits_of(Algorithm::TokenBucket, 1);
        let cell = Cell::Bucket(Bucket {
            full_at: FracMicros { whole: 7, part: 3 },
            refill: 10,
            horizon: Horizon::from_exponent(21).unwrap(),
            overhang: Overhang::NONE,
        });
        let state = state_of(Fingerprint::of(1), token, &cell);
        assert_eq!(state.cell(token), Some(cell));
        assert_eq!(state.cell(bits_of(Algorithm::TokenBucket, 2)), Some(cell));
        assert_eq!(state.cell(bits_of(Algorithm::LeakyBucket, 1)), Some(cell));
        assert_eq!(state.cell(bits_of(Algorithm::FixedWindow, 1)), None);
        assert_eq!(state.cell(bits_of(Algorithm::SlidingWindow, 1)), None);
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
        state_of(Fingerprint::of(7), LimitBits::of(&limit), &cell)
    }

    #[test]
    fn the_cost_of_one_limit_grows_with_its_used_part() {
        let now = Timestamp::from_micros(100_000_000).unwrap();
        let costs = [
            0, 1, 2_000_000, 4_000_000, 8_000_000, 15_000_000, 16_000_000,
        ]
        .map(|used| bucket_of(16, 100_000_000 + used).eviction_cost(now));
        assert_eq!(costs[0], EvictionCost::NONE);
        assert!(costs.is_sorted_by(|less, more| less < more), "{costs:?}");
        assert!(costs[2].is_small() && !costs[4].is_small());
    }

    #[test]
    fn of_limits_with_equal_use_the_longer_has_the_greater_cost() {
        let now = Timestamp::from_micros(100_000_000).unwrap();
        let cost = |seconds, used: u64| bucket_of(seconds, 100_000_000 + used).eviction_cost(now);
        let used_up = cost(60, 60_000_000);
        assert!(cost(3600, 3_600_000_000) > used_up);
        assert!(cost(3600, 2_700_000_000) > used_up, "three quarters of it");
        assert!(cost(3600, 2_000_000_000) < used_up, "little more than half");
        assert!(cost(86_400, 864_000_000) < used_up, "a hundredth of a day");
    }
}
