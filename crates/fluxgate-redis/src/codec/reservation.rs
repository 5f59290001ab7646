//! Records of reservations: the requests that cancel each of them.

use fluxgate_core::{StoreError, Timestamp};

use super::record::{RecordReader, foreign_record, write_calendar};
use super::request::{KeyKind, Op, Request, put};
use crate::keys::{write_length, write_text};

/// The version of records.
const VERSION: u8 = 1;

/// The record of a reservation.
#[derive(Clone, Debug)]
pub(crate) struct ReservationRecord {
    /// When the request proceeds.
    pub(crate) until: Timestamp,
    /// Whether the request has a hold.
    pub(crate) is_held: bool,
    /// The requests that cancel it, one for each rule.
    pub(crate) requests: Vec<Request>,
}

impl ReservationRecord {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.is_held.into()];
        put(&mut out, self.until.micros(), 8);
        write_length(self.requests.len(), &mut out);
        for request in &self.requests {
            write_length(request.keys().count(), &mut out);
            for (name, kind) in request.keys() {
                out.push(kind as u8);
                write_text(name, &mut out);
            }
            write_text(&request.checks, &mut out);
            write_length(request.calendars.len(), &mut out);
            for (start, calendar) in &request.calendars {
                write_length(*start, &mut out);
                write_calendar(calendar, &mut out);
            }
        }
        out
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let read = || {
            let mut reader = RecordReader(bytes);
            if reader.byte()? != VERSION {
                return None;
            }
            let is_held = reader.byte()? == 1;
            let until = Timestamp::from_micros(reader.number(8)?)?;
            let count = reader.length()?;
            let requests: Option<Vec<_>> = (0..count).map(|_| read_request(&mut reader)).collect();
            reader.0.is_empty().then_some(Self {
                until,
                is_held,
                requests: requests?,
            })
        };
        read().ok_or_else(foreign_record)
    }
}

fn read_request(reader: &mut RecordReader<'_>) -> Option<Request> {
    let mut request = Request::new(Op::Cancel, 0);
    for number in 0..reader.length()? {
        let kind = match reader.byte()? {
            0 => KeyKind::Cell,
            1 => KeyKind::Log,
            _ => return None,
        };
        let name = reader.text()?;
        // Every key is there once.
        let added = request.add_key(kind, |names| names.extend_from_slice(name));
        (added == number).then_some(())?;
    }
    request.checks = reader.text()?.to_vec();
    request.has_whole_checks().then_some(())?;
    for _ in 0..reader.length()? {
        let start = reader.length()?;
        let calendar = reader.calendar()?;
        let is_check = start.is_multiple_of(request.check_size()) && start < request.checks.len();
        is_check.then_some(())?;
        request.calendars.push((start, calendar));
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fluxgate_core::key::RuleNumber;
    use fluxgate_core::store::{Charged, Micros, Retry, Subject, Verdict};
    use fluxgate_core::{Algorithm, Band, Calendar, CalendarUnit, Limit};
    use proptest::prelude::*;

    use super::*;
    use crate::keys::KeyNaming;

    fn record() -> ReservationRecord {
        let second = Duration::from_secs(1);
        let month = Calendar::new(CalendarUnit::Month).in_time_zone("Asia/Seoul".parse().unwrap());
        let limits = [
            Limit::builder(Algorithm::TokenBucket, 5, second)
                .max_wait(second)
                .build(),
            Limit::builder(Algorithm::SlidingLog, 5, second).build(),
            Limit::calendar(10, month).build(),
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
        let at = Timestamp::from_micros(1_700_000_000_000_000).unwrap();
        let charged = Charged::by(&Verdict {
            at,
            remaining: 0,
            part: 0,
            retry_after: Retry::NOW,
            reset_after: Micros::new(2_000_000),
            delay: Micros::new(1_000_000),
        });
        let naming = KeyNaming::default();
        ReservationRecord {
            until: at,
            is_held: true,
            requests: vec![Request::cancel(subject, &bands, 2, &[charged; 3], &naming)],
        }
    }

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let record = record();
        let bytes = record.write();
        let read = ReservationRecord::read(&bytes).unwrap();
        assert_eq!((read.until, read.is_held), (record.until, record.is_held));
        assert_eq!(read.write(), bytes);
        for end in 0..bytes.len() {
            assert!(ReservationRecord::read(&bytes[..end]).is_err());
        }
    }

    proptest! {
        /// Whatever is at the key, it is read or refused, and what is read can be sent.
        #[test]
        fn any_bytes_are_read_without_a_panic(at in any::<usize>(), byte in any::<u8>()) {
            let mut bytes = record().write();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(mut record) = ReservationRecord::read(&bytes) {
                for request in &mut record.requests {
                    request.set_windows(Timestamp::MAX);
                    let _ = crate::codec::Call::new(&[&*request], None);
                }
            }
        }
    }
}
