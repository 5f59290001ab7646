//! Records of holds: what each hold charged, so that any process can settle it by its id.
//!
//! On one server the record is one value, which the script completes (`lua/hold.lua`). On a
//! cluster, one value lists the parts of the hold with their charges, and each part also has its
//! own record, with what only the call for that part knows. Numbers are little-endian; lengths are
//! varints (seven bits per byte). A key is written as the length of the prefix that it shares with
//! the previous key, followed by the rest.

use fluxgate_core::limit::{Horizon, MAX_SPAN, MAX_UNITS};
use fluxgate_core::store::{Checks, HoldRequest, Micros};
use fluxgate_core::{Algorithm, Calendar, CalendarUnit, Limit, StoreError};

use super::answer::combined_cost;
use super::request::{SubjectKeyWriter, put};
use super::state::{
    BUCKET_TAG, CALENDAR_TAG, SHAPING_TAG, SLOTS_TAG, bucket_tag, tag_of, window_ms,
};
use crate::error::error;
use crate::keys::{KeyNaming, write_length, write_text};
use crate::reason;

/// The version of the list of parts.
const VERSION: u8 = 2;
/// The size of the header before the charges. The script writes the header.
const HEADER_SIZE: usize = 8;

/// What a hold may have charged to one counter. Only the script knows whether it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedCharge {
    pub(super) key: Vec<u8>,
    pub(super) counter: RecordedCounter,
    /// The reserved cost.
    pub(crate) units: u64,
    /// The attribute that the rule counts, if it counts one.
    pub(crate) attribute: Option<Box<str>>,
}

/// The numbers of a counter that a settlement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedCounter {
    Bucket(RecordedBucket),
    /// A window or a log.
    Window {
        tag: u8,
        window_ms: u64,
        capacity: u64,
    },
    Calendar {
        calendar: Calendar,
        capacity: u64,
    },
    Slots {
        /// The longest span from the present to their end, in microseconds.
        longest: u64,
        /// How many the check took, including those of earlier checks of its counter; 0 if a
        /// later check took them.
        taken: u64,
    },
}

/// A token bucket or a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedBucket {
    pub(super) shape: bool,
    pub(super) horizon: u8,
    pub(super) max_wait_ms: u64,
    pub(super) capacity: u64,
    pub(super) refill: u64,
    pub(super) period: u64,
}

/// The part of a hold in one hash slot of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedPart {
    /// The key of its record.
    pub(crate) key: Vec<u8>,
    pub(crate) charges: Vec<RecordedCharge>,
}

/// Returns the charges to record for `checks`.
pub(crate) fn charges_of(
    checks: &Checks<'_>,
    hold: &HoldRequest<'_>,
    naming: &KeyNaming,
) -> Vec<RecordedCharge> {
    let mut keys = SubjectKeyWriter::new(naming);
    let list = checks.list().iter().enumerate();
    let charges = list.map(|(at, check)| {
        let (combined, is_last) = combined_cost(checks, at);
        let limit = check.band.shared_limit();
        RecordedCharge {
            key: keys.name_of(check),
            counter: RecordedCounter::of(limit, if is_last { combined } else { 0 }),
            // A cost that passes is at most the capacity, so it fits in 32 bits.
            units: check.cost.min(u32::MAX.into()),
            attribute: hold.attributes().get(at).copied().flatten().map(Into::into),
        }
    });
    charges.collect()
}

/// Appends charges, for a record.
pub(super) fn write_charges(charges: &[RecordedCharge], out: &mut Vec<u8>) {
    write_length(charges.len(), out);
    let mut last: &[u8] = &[];
    for charge in charges {
        charge.write(last, out);
        last = &charge.key;
    }
}

/// Reads the record of a hold on one server.
pub(crate) fn read_record(bytes: &[u8]) -> Result<Vec<RecordedCharge>, StoreError> {
    bytes
        .get(HEADER_SIZE..)
        .and_then(|bytes| RecordReader(bytes).charges())
        .ok_or_else(foreign_record)
}

/// Writes the list of the parts of a hold.
pub(crate) fn write_parts(parts: &[RecordedPart]) -> Vec<u8> {
    let mut out = vec![VERSION];
    write_length(parts.len(), &mut out);
    for part in parts {
        write_text(&part.key, &mut out);
        write_charges(&part.charges, &mut out);
    }
    out
}

/// Reads the list of the parts of a hold.
pub(crate) fn read_parts(bytes: &[u8]) -> Result<Vec<RecordedPart>, StoreError> {
    let read = || {
        let mut reader = RecordReader(bytes);
        if reader.byte()? != VERSION {
            return None;
        }
        let count = reader.length()?;
        let parts = (0..count).map(|_| {
            let key = reader.text()?.to_vec();
            let charges = reader.charges()?;
            Some(RecordedPart { key, charges })
        });
        parts.collect::<Option<Vec<_>>>()
    };
    read().ok_or_else(foreign_record)
}

impl RecordedCharge {
    pub(crate) fn has_slots(&self) -> bool {
        self.longest().is_some()
    }

    /// Returns the longest time that this charge may delay a request.
    pub(crate) fn longest_wait(&self) -> Micros {
        match self.counter {
            RecordedCounter::Bucket(bucket) if bucket.shape => {
                let units = u128::from(bucket.capacity) * u128::from(bucket.period);
                let fill = units / u128::from(bucket.refill.max(1));
                Micros::new(u64::try_from(fill).unwrap_or(u64::MAX).saturating_add(1))
            }
            RecordedCounter::Bucket(bucket) => Micros::new(bucket.max_wait_ms.saturating_mul(1000)),
            _ => Micros::ZERO,
        }
    }

    /// Returns the longest span from the present to the end of its slots, if it has any.
    pub(crate) fn longest(&self) -> Option<u64> {
        match self.counter {
            RecordedCounter::Slots { longest, .. } => Some(longest),
            _ => None,
        }
    }

    fn write(&self, last: &[u8], out: &mut Vec<u8>) {
        match self.counter {
            RecordedCounter::Bucket(bucket) => {
                out.extend_from_slice(&[bucket_tag(bucket.shape), bucket.horizon]);
                put(out, bucket.max_wait_ms, 5);
                put(out, bucket.capacity, 4);
                put(out, bucket.refill, 4);
                put(out, bucket.period, 7);
            }
            RecordedCounter::Window {
                tag,
                window_ms,
                capacity,
            } => {
                out.push(tag);
                put(out, window_ms, 5);
                put(out, capacity, 4);
            }
            RecordedCounter::Calendar { calendar, capacity } => {
                out.push(CALENDAR_TAG);
                write_calendar(&calendar, out);
                put(out, capacity, 4);
            }
            RecordedCounter::Slots { longest, taken } => {
                out.push(SLOTS_TAG);
                put(out, longest, 5);
                put(out, taken, 4);
            }
        }
        put(out, self.units, 4);
        match &self.attribute {
            Some(name) => {
                write_length(name.len() + 1, out);
                out.extend_from_slice(name.as_bytes());
            }
            None => write_length(0, out),
        }
        let both = self.key.iter().zip(last);
        let common = both.take_while(|(byte, other)| byte == other).count();
        write_length(common, out);
        write_text(&self.key[common..], out);
    }
}

impl RecordedCounter {
    fn of(limit: &Limit, taken: u64) -> Self {
        let capacity = limit.capacity();
        match (limit.algorithm(), limit.windows()) {
            (Algorithm::Concurrency, _) => Self::Slots {
                longest: limit.window().get(),
                taken: taken.min(capacity),
            },
            (_, Some(calendar)) => Self::Calendar {
                calendar: *calendar,
                capacity,
            },
            (algorithm, None) if algorithm.is_bucket() => Self::Bucket(RecordedBucket {
                shape: limit.rate().shape(),
                horizon: limit.rate().horizon().exponent(),
                max_wait_ms: window_ms(limit),
                capacity,
                refill: limit.rate().refill(),
                period: limit.rate().period().get(),
            }),
            _ => Self::Window {
                tag: tag_of(limit),
                window_ms: window_ms(limit),
                capacity,
            },
        }
    }

    /// Returns the units of the quota; 0 for slots, because a settlement never takes more of them.
    pub(super) fn capacity(&self) -> u64 {
        match *self {
            Self::Bucket(RecordedBucket { capacity, .. })
            | Self::Window { capacity, .. }
            | Self::Calendar { capacity, .. } => capacity,
            Self::Slots { .. } => 0,
        }
    }
}

/// Reads a record. Every method returns `None` if the bytes are malformed.
pub(super) struct RecordReader<'a>(pub(super) &'a [u8]);

impl<'a> RecordReader<'a> {
    fn charges(&mut self) -> Option<Vec<RecordedCharge>> {
        let count = self.length()?;
        let mut charges: Vec<RecordedCharge> = Vec::new();
        for _ in 0..count {
            let counter = self.counter()?;
            let units = self.number(4)?;
            let attribute = match self.length()? {
                0 => None,
                length => Some(str::from_utf8(self.take(length - 1)?).ok()?.into()),
            };
            let common = self.length()?;
            let last = charges.last().map_or(&[][..], |charge| &charge.key);
            let mut key = last.get(..common)?.to_vec();
            key.extend_from_slice(self.text()?);
            charges.push(RecordedCharge {
                key,
                counter,
                units,
                attribute,
            });
        }
        Some(charges)
    }

    fn counter(&mut self) -> Option<RecordedCounter> {
        Some(match self.byte()? {
            tag @ (BUCKET_TAG | SHAPING_TAG) => RecordedCounter::Bucket(RecordedBucket {
                shape: tag == SHAPING_TAG,
                horizon: Horizon::from_exponent(self.byte()?)?.exponent(),
                max_wait_ms: self.span(5)?,
                capacity: self.units()?,
                refill: self.units()?,
                period: self.span(7).filter(|period| *period > 0)?,
            }),
            tag @ 243..=245 => RecordedCounter::Window {
                tag,
                window_ms: self.span(5).filter(|window| *window > 0)?,
                capacity: self.units()?,
            },
            CALENDAR_TAG => RecordedCounter::Calendar {
                calendar: self.calendar()?,
                capacity: self.units()?,
            },
            SLOTS_TAG => RecordedCounter::Slots {
                longest: self.number(5)?,
                taken: self.number(4)?,
            },
            _ => return None,
        })
    }

    pub(super) fn calendar(&mut self) -> Option<Calendar> {
        let unit = self.text()?;
        let mut units = CalendarUnit::NAMES.iter();
        let (_, unit) = units.find(|(name, _)| name.as_bytes() == unit)?;
        let zone = str::from_utf8(self.text()?).ok()?.parse().ok()?;
        Some(Calendar::new(*unit).in_time_zone(zone))
    }

    /// Reads the units of a limit.
    fn units(&mut self) -> Option<u64> {
        self.number(4)
            .filter(|units| (1..=MAX_UNITS).contains(units))
    }

    /// Reads a span of a limit, in microseconds or milliseconds.
    fn span(&mut self, bytes: usize) -> Option<u64> {
        self.number(bytes).filter(|span| *span <= MAX_SPAN.get())
    }

    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        let mut length = 0;
        for shift in (0..28).step_by(7) {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(length);
            }
        }
        None
    }

    pub(super) fn number(&mut self, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(self.take(bytes)?);
        Some(u64::from_le_bytes(number))
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }
}

pub(super) fn write_calendar(calendar: &Calendar, out: &mut Vec<u8>) {
    write_text(calendar.unit().name().as_bytes(), out);
    write_text(calendar.time_zone().name().as_bytes(), out);
}

pub(super) fn foreign_record() -> StoreError {
    let message =
        "the key of a hold or a reservation has a value that this version of FluxGate cannot read";
    error(reason::BAD_TYPES, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fluxgate_core::key::RuleNumber;
    use fluxgate_core::store::{Group, Micros, Mode, Settlement, Subject};
    use fluxgate_core::{Band, HoldId};
    use proptest::prelude::*;

    use super::super::request::Request;
    use super::*;

    fn recorded() -> Vec<RecordedCharge> {
        let second = Duration::from_secs(1);
        let bucket = Limit::builder(Algorithm::TokenBucket, 1_000_000_000, 7 * second);
        let calendar =
            Calendar::new(CalendarUnit::Month).in_time_zone("Asia/Seoul".parse().unwrap());
        let limits = [
            bucket.refill(999_999_999).max_wait(second).build(),
            Limit::builder(Algorithm::FixedWindow, 10, second).build(),
            Limit::builder(Algorithm::SlidingLog, 10, second).build(),
            Limit::calendar(10, calendar).build(),
            Limit::concurrency(10).build(),
        ];
        let bands: Vec<_> = limits
            .into_iter()
            .enumerate()
            .map(|(at, limit)| Band::new(format!("b{at}"), limit.unwrap()))
            .collect();
        let subject = Subject {
            rule: RuleNumber::NONE,
            bytes: b"somebody",
        };
        let mut checks = Checks::new(Mode::Take);
        checks.push(subject, &bands, 3, Group::ENFORCED);
        let hold = HoldRequest::new(
            HoldId::from_bits(1),
            None,
            [None, Some("tokens"), Some(""), None, None],
        );
        charges_of(&checks, &hold, &KeyNaming::default())
    }

    #[test]
    fn charges_are_read_as_they_are_written() {
        let charges = recorded();
        let mut record = vec![0; HEADER_SIZE];
        write_charges(&charges, &mut record);
        assert_eq!(read_record(&record), Ok(charges.clone()));
        let parts = [
            RecordedPart {
                key: b"a".to_vec(),
                charges: charges.clone(),
            },
            RecordedPart {
                key: b"b".to_vec(),
                charges: charges[1..].to_vec(),
            },
        ];
        let list = write_parts(&parts);
        assert_eq!(read_parts(&list), Ok(parts.to_vec()));
        for end in 0..list.len() {
            assert!(read_parts(&list[..end]).is_err());
        }
        for end in 0..record.len() {
            assert!(read_record(&record[..end]).is_err());
        }
    }

    proptest! {
        /// Any value is either read or refused, and a value that is read can be settled without a
        /// panic.
        #[test]
        fn any_bytes_are_read_without_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300),
            at in any::<usize>(),
            byte in any::<u8>(),
            is_near in any::<bool>(),
        ) {
            if is_near {
                bytes = vec![0; HEADER_SIZE];
                write_charges(&recorded(), &mut bytes);
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if let Ok(charges) = read_record(&bytes) {
                let id = HoldId::from_bits(1);
                for settlement in [Settlement::RELEASE, Settlement::Cost(u64::MAX)] {
                    let _ = Request::settle(b"record", id, &charges, &settlement);
                }
                let _ = Request::renew(b"record", id, &charges, Micros::new(1), Micros::new(1));
            }
            let _ = read_parts(&bytes);
        }
    }

    #[test]
    fn a_record_is_small() {
        let mut record = Vec::new();
        write_charges(&recorded(), &mut record);
        assert!(record.len() < 200, "{} bytes for five bands", record.len());
    }
}
