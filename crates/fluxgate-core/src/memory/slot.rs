//! A key and its state in 32 bytes, two to a cache line.

use crate::algorithm::{Bucket, Cell, Counts, Value};
use crate::limit::{Algorithm, Fine, Limit};
use crate::rules::RuleNumber;
use crate::time::{Micros, Timestamp};

/// A key and its state, or nothing.
///
/// | word | from bit 0 up |
/// |---|---|
/// | 0 | fingerprint, 64 |
/// | 1 | instant or window start, 58; fingerprint, 6 |
/// | 2 | fraction or previous count, 30; refill or current count, 30; algorithm, 3 |
/// | 3 | window in ms, 35; rule, 20; scale, 9 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot([u64; 4]);

const INSTANT_BITS: u32 = 58;
const COUNT_BITS: u32 = 30;
const WINDOW_BITS: u32 = 35;
const ALGORITHM_SHIFT: u32 = 2 * COUNT_BITS;
const SCALE_SHIFT: u32 = WINDOW_BITS + RuleNumber::BITS;

/// What of a fingerprint a slot keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    high: u64,
    low: u64,
}

impl Print {
    pub(super) fn of(fingerprint: u128) -> Self {
        Self {
            high: (fingerprint >> 64) as u64,
            low: (fingerprint as u64) << INSTANT_BITS,
        }
    }

    /// Where in a shard's table the key belongs, as a part of 2^32.
    pub(super) fn home(self) -> u32 {
        (self.high >> 32) as u32
    }
}

/// How much is lost when a slot is forgotten: the used part of its quota, in
/// 65536ths. Nothing is lost of what is full again.
pub(super) type Loss = u64;

impl Slot {
    pub(super) fn new(print: Print, rule: RuleNumber, limit: &Limit, cell: &Cell) -> Self {
        let (instant, first, second) = match cell.value {
            Value::Bucket(Bucket { full_at, refill }) => (full_at.whole, full_at.part, refill),
            Value::Counts(counts) => (counts.start, counts.previous, counts.current),
        };
        let algorithm = match cell.algorithm {
            Algorithm::TokenBucket => 1,
            Algorithm::LeakyBucket => 2,
            Algorithm::FixedWindow => 3,
            Algorithm::SlidingLog | Algorithm::SlidingWindow => 4,
        };
        let scale = match cell.value {
            Value::Bucket(_) => limit.rate().fill().whole,
            Value::Counts(_) => limit.capacity(),
        };
        Self([
            print.high,
            instant | print.low,
            u64::from(first) | u64::from(second) << COUNT_BITS | algorithm << ALGORITHM_SHIFT,
            cell.window.get() / 1000
                | u64::from(rule.get()) << WINDOW_BITS
                | shorten(scale) << SCALE_SHIFT,
        ])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0[2] >> ALGORITHM_SHIFT == 0
    }

    pub(super) fn has(&self, print: Print) -> bool {
        self.0[0] == print.high && (self.0[1] ^ print.low) >> INSTANT_BITS == 0 && !self.is_empty()
    }

    /// As [`Print::home`].
    pub(super) fn home(&self) -> u32 {
        (self.0[0] >> 32) as u32
    }

    pub(super) fn rule(&self) -> u32 {
        (self.0[3] >> WINDOW_BITS) as u32 & ((1 << RuleNumber::BITS) - 1)
    }

    /// The state; `None` if the slot is empty.
    pub(super) fn cell(&self) -> Option<Cell> {
        let instant = self.0[1] & ((1 << INSTANT_BITS) - 1);
        let count_mask = (1 << COUNT_BITS) - 1;
        let first = (self.0[2] & count_mask) as u32;
        let second = (self.0[2] >> COUNT_BITS & count_mask) as u32;
        let algorithm = match self.0[2] >> ALGORITHM_SHIFT {
            1 => Algorithm::TokenBucket,
            2 => Algorithm::LeakyBucket,
            3 => Algorithm::FixedWindow,
            4 => Algorithm::SlidingWindow,
            _ => return None,
        };
        let value = if algorithm.is_bucket() {
            Value::Bucket(Bucket {
                full_at: Fine {
                    whole: instant,
                    part: first,
                },
                refill: second,
            })
        } else {
            Value::Counts(Counts {
                start: instant,
                previous: first,
                current: second,
            })
        };
        let window_ms = self.0[3] & ((1 << WINDOW_BITS) - 1);
        Some(Cell {
            algorithm,
            window: Micros::new(window_ms * 1000),
            value,
        })
    }

    /// Whether nothing is lost if it is forgotten at `now`.
    pub(super) fn is_spent(&self, now: Timestamp) -> bool {
        let Some(cell) = self.cell() else { return true };
        let means_something_until = match cell.value {
            Value::Bucket(bucket) => bucket.full_at.ceil(),
            Value::Counts(counts) => match cell.algorithm {
                Algorithm::SlidingWindow => counts.start + 2 * cell.window.get(),
                _ => counts.start + cell.window.get(),
            },
        };
        means_something_until <= now.micros()
    }

    /// What forgetting it at `now` would cost.
    pub(super) fn loss(&self, now: Timestamp) -> Loss {
        let Some(cell) = self.cell() else { return 0 };
        let now = now.micros();
        let used = match cell.value {
            Value::Bucket(bucket) => bucket.full_at.ceil().saturating_sub(now),
            Value::Counts(counts) => {
                let width = cell.window.get();
                let gone = now.saturating_sub(counts.start);
                // What fades, and how much of its window is still covered.
                let (whole, fading, covered) = match gone / width {
                    0 => (counts.current, counts.previous, width - gone),
                    1 if cell.algorithm == Algorithm::SlidingWindow => {
                        (0, counts.current, 2 * width - gone)
                    }
                    _ => (0, 0, 0),
                };
                let fading = u128::from(fading) * u128::from(covered) / u128::from(width);
                u64::from(whole) + fading as u64
            }
        };
        if used == 0 {
            return 0;
        }
        let scale = lengthen(self.0[3] >> SCALE_SHIFT);
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
    fn a_slot_holds_the_largest_numbers_of_the_domain() {
        let print = Print::of(u128::MAX);
        let latest = Timestamp::MAX.micros() + 4_026 * 86_400_000_000;
        let most = MAX_UNITS as u32;
        for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
            let cell = Cell {
                algorithm,
                window: MAX_SPAN,
                value: Value::Bucket(Bucket {
                    full_at: Fine {
                        whole: latest,
                        part: most - 1,
                    },
                    refill: most,
                }),
            };
            let slot = Slot::new(print, RuleNumber::NONE, &limit(algorithm), &cell);
            assert_eq!(slot.cell(), Some(cell));
            assert!(slot.has(print) && !slot.has(Print::of(u128::MAX - 1)));
        }
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let cell = Cell {
                algorithm,
                window: MAX_SPAN,
                value: Value::Counts(Counts {
                    start: Timestamp::MAX.micros(),
                    previous: most,
                    current: most,
                }),
            };
            let slot = Slot::new(print, RuleNumber::NONE, &limit(algorithm), &cell);
            assert_eq!(slot.cell(), Some(cell));
        }
        assert!(Slot::default().is_empty() && !Slot::default().has(Print::of(0)));
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
            let value = Value::Bucket(Bucket {
                full_at: Fine { whole, part: 0 },
                refill: 16,
            });
            let cell = Cell {
                algorithm: Algorithm::TokenBucket,
                window: limit.window(),
                value,
            };
            Slot::new(Print::of(7), RuleNumber::NONE, &limit, &cell)
        };
        let now = Timestamp::from_micros(100_000_000).unwrap();
        assert_eq!(slot(100_000_000).loss(now), 0);
        assert_eq!(slot(100_000_001).loss(now), 1);
        let half = slot(108_000_000).loss(now);
        assert!((32_768..37_000).contains(&half), "{half}");
        assert!(slot(116_000_000).loss(now) > half);
    }
}
