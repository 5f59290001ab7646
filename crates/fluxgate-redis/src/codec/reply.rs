//! Parses the script's reply to one call.
//!
//! A reply is a version byte and the time; then, for each request, one entry per check and a
//! semicolon. An entry begins with a letter, in lower case if the check passed:
//!
//! | letter | state |
//! |---|---|
//! | `n` | none |
//! | `i` | the digits of a bucket |
//! | `b` | a bucket |
//! | `o` | a bucket with an overhang |
//! | `c` | counts |
//! | `l` | the summary of a log |
//! | `h` | the summary of slots |
//!
//! After the entries, `p` means that the request has a permit to wait; `P`, that it has to wait
//! but no permit was free, so it was decided without one. Instead of entries, `E` means that a
//! key has a foreign value; `T`, that the calendar windows of the request do not contain the
//! time, so it was not decided. The answer to a settlement or a renewal is `G` (there is no such
//! hold), `R` (renewed), or `S` (settled) with what was charged in addition to each charge. The
//! answer to a lease request is the state after it, and `a` with the grant.

use fluxgate_core::algorithm::{Bucket, Counts, Grant, LogSummary, Overhang};
use fluxgate_core::limit::{FracMicros, Horizon, MAX_LOG_UNITS, MAX_UNITS};
use fluxgate_core::store::Micros;
use fluxgate_core::{StoreError, Timestamp};

use super::answer::{Answer, Entry, HoldOutcome};
use super::state::{BUCKET_TAG, SlotSummary, StoredState};
use crate::error::bad_response;
use crate::reason;

const VERSION: u8 = 2;
/// Marks a charge that was not made.
const NOT_CHARGED: u32 = u32::MAX;
const WINDOWS: std::ops::RangeInclusive<u8> = 243..=244;

/// Returns one answer for each of `count` requests, or an error for a request whose keys have
/// foreign values.
pub(crate) fn parse_reply(
    bytes: &[u8],
    count: usize,
) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
    let mut reader = ReplyReader(bytes);
    if reader.byte()? != VERSION {
        return Err(bad_response("the reply has an unknown version"));
    }
    let now = u64::try_from(reader.whole()?)
        .ok()
        .and_then(Timestamp::from_micros)
        .ok_or_else(|| bad_response("the reply has no valid time"))?;
    let answers = (0..count).map(|_| reader.answer(now)).collect();
    match reader.0 {
        [] => answers,
        _ => Err(bad_response("the reply is longer than expected")),
    }
}

struct ReplyReader<'a>(&'a [u8]);

impl ReplyReader<'_> {
    fn answer(&mut self, now: Timestamp) -> Result<Result<Answer, StoreError>, StoreError> {
        let mut answer = Answer::new(now);
        loop {
            let letter = self.byte()?;
            let stored = match letter.to_ascii_lowercase() {
                b';' => return Ok(Ok(answer)),
                b'e' if letter == b'E' && answer.entries.is_empty() => {
                    self.end()?;
                    return Ok(Err(foreign_value()));
                }
                b't' if letter == b'T' && answer.entries.is_empty() => {
                    answer.is_outside_window = true;
                    break;
                }
                b'g' | b'r' | b's' if letter.is_ascii_uppercase() && answer.entries.is_empty() => {
                    let outcome = match letter {
                        b'G' => HoldOutcome::Gone,
                        b'R' => HoldOutcome::Renewed,
                        _ => HoldOutcome::Settled(self.settled()?),
                    };
                    answer.hold = Some(Box::new(outcome));
                    break;
                }
                b'a' => {
                    answer.grant = Some(Box::new(self.grant()?));
                    break;
                }
                b'p' => {
                    answer.permit = Some(letter == b'p');
                    break;
                }
                b'n' => StoredState::Nothing,
                b'i' => self.digits()?,
                b'b' => self.bucket(false)?,
                b'o' => self.bucket(true)?,
                b'c' => self.counts()?,
                b'l' => self.log()?,
                b'h' => self.slots()?,
                _ => return Err(bad_response("the reply has an entry of unknown kind")),
            };
            answer.entries.push(Entry {
                passes: letter.is_ascii_lowercase(),
                stored,
            });
        }
        self.end()?;
        Ok(Ok(answer))
    }

    /// Reads the end of an answer.
    fn end(&mut self) -> Result<(), StoreError> {
        match self.byte()? {
            b';' => Ok(()),
            _ => Err(bad_response(
                "the reply has bytes after the end of an answer",
            )),
        }
    }

    /// Reads what was charged in addition to each charge of a hold.
    fn settled(&mut self) -> Result<Vec<Option<u32>>, StoreError> {
        let count = u16::from_le_bytes(self.take()?);
        let charged = (0..count).map(|_| {
            let charged = u32::from_le_bytes(self.take()?);
            Ok(Some(charged).filter(|charged| *charged != NOT_CHARGED))
        });
        charged.collect()
    }

    fn grant(&mut self) -> Result<Grant, StoreError> {
        let grant = Grant {
            units: u32::from_le_bytes(self.take()?),
            ends: self.number::<7>()?,
            window_left: Some(Micros::new(self.number::<7>()?)),
            outstanding: u32::from_le_bytes(self.take()?),
        };
        let fits = |units: u32| u64::from(units) <= MAX_UNITS;
        if fits(grant.units) && fits(grant.outstanding) {
            Ok(grant)
        } else {
            Err(bad_response("the reply has an impossible grant"))
        }
    }

    fn slots(&mut self) -> Result<StoredState, StoreError> {
        let slots = SlotSummary {
            held: self.number::<5>()?,
            last: self.number::<7>()?,
            enough: self.number::<7>()?,
        };
        if slots.held <= MAX_UNITS && slots.last <= Timestamp::MAX.micros() {
            Ok(StoredState::Slots(slots))
        } else {
            Err(bad_response("the reply has impossible slots"))
        }
    }

    /// Reads an instant of 16 digits and a horizon of two.
    fn digits(&mut self) -> Result<StoredState, StoreError> {
        let digits: [u8; 18] = self.take()?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(bad_response("the reply has a bucket that is not in digits"));
        }
        let number = |digits: &[u8]| {
            let digits = digits.iter();
            digits.fold(0, |number, digit| 10 * number + u64::from(digit - b'0'))
        };
        let (instant, horizon) = digits.split_at(16);
        Ok(StoredState::Bucket(Bucket {
            full_at: FracMicros {
                whole: number(instant),
                part: 0,
            },
            refill: 1,
            horizon: horizon_of(number(horizon) as u8)?,
            overhang: Overhang::NONE,
        }))
    }

    fn bucket(&mut self, has_overhang: bool) -> Result<StoredState, StoreError> {
        let tag = self.byte()?;
        let horizon = horizon_of(self.byte()?)?;
        let full_at = FracMicros {
            whole: self.number::<7>()?,
            part: u32::from_le_bytes(self.take()?),
        };
        let refill = u32::from_le_bytes(self.take()?);
        let overhang = if has_overhang {
            Overhang::from_bits(u32::from_le_bytes(self.take()?))
        } else {
            Some(Overhang::NONE)
        };
        match overhang {
            Some(overhang)
                if tag == BUCKET_TAG && full_at.part < refill && u64::from(refill) <= MAX_UNITS =>
            {
                Ok(StoredState::Bucket(Bucket {
                    full_at,
                    refill,
                    horizon,
                    overhang,
                }))
            }
            _ => Err(bad_response("the reply has an impossible bucket")),
        }
    }

    fn counts(&mut self) -> Result<StoredState, StoreError> {
        let tag = self.byte()?;
        let counts = Counts {
            start: self.number::<7>()?,
            previous: u32::from_le_bytes(self.take()?),
            current: u32::from_le_bytes(self.take()?),
        };
        // A settlement may charge as much again as a limit allows.
        let fits = |number: u32| u64::from(number) <= 2 * MAX_UNITS;
        if WINDOWS.contains(&tag) && fits(counts.previous) && fits(counts.current) {
            Ok(StoredState::Counts(tag, counts))
        } else {
            Err(bad_response("the reply has impossible counts"))
        }
    }

    fn log(&mut self) -> Result<StoredState, StoreError> {
        let newest = self.whole()?;
        let counted = u64::try_from(self.whole()?).unwrap_or(u64::MAX);
        let leaves = self.whole()?;
        if counted > 2 * MAX_LOG_UNITS {
            return Err(bad_response("the reply has a log with too many units"));
        }
        Ok(StoredState::Log(LogSummary {
            newest: Some(newest),
            counted,
            // The check determines whether it has a meaning.
            leaves: Some(leaves),
        }))
    }

    /// Reads a double that is a whole number.
    fn whole(&mut self) -> Result<i64, StoreError> {
        const MOST: i64 = 1 << 53;
        let number = f64::from_le_bytes(self.take()?);
        // NaN and what is out of range become other numbers.
        let whole = number as i64;
        if whole as f64 == number && (-MOST..MOST).contains(&whole) {
            Ok(whole)
        } else {
            Err(bad_response("the reply has a number that is not whole"))
        }
    }

    fn number<const BYTES: usize>(&mut self) -> Result<u64, StoreError> {
        let mut number = [0; 8];
        number[..BYTES].copy_from_slice(&self.take::<BYTES>()?);
        Ok(u64::from_le_bytes(number))
    }

    fn byte(&mut self) -> Result<u8, StoreError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], StoreError> {
        let Some((head, tail)) = self.0.split_first_chunk() else {
            return Err(bad_response("the reply ends too early"));
        };
        self.0 = tail;
        Ok(*head)
    }
}

fn horizon_of(exponent: u8) -> Result<Horizon, StoreError> {
    Horizon::from_exponent(exponent)
        .ok_or_else(|| bad_response("the reply has an impossible horizon"))
}

fn foreign_value() -> StoreError {
    StoreError {
        reason: reason::BAD_TYPES,
        message: "a key of this request holds a value that FluxGate did not write".into(),
    }
}

#[cfg(test)]
mod tests {
    use fluxgate_core::store::Reason;

    use super::*;

    fn reply(now: f64, entries: &[u8]) -> Vec<u8> {
        [&[VERSION], &now.to_le_bytes()[..], entries].concat()
    }

    #[test]
    fn only_a_complete_reply_is_accepted() {
        let whole = reply(1.0, b"n;E;N;");
        let answers = parse_reply(&whole, 3).unwrap();
        assert_eq!(answers[1].as_ref().unwrap_err().reason, reason::BAD_TYPES);
        assert!(answers[0].is_ok() && answers[2].is_ok());
        for count in [0, 1, 2, 4] {
            assert!(parse_reply(&whole, count).is_err());
        }
        for end in 0..whole.len() {
            let error = parse_reply(&whole[..end], 3).unwrap_err();
            assert_eq!(error.reason, Reason::BAD_RESPONSE);
        }
        for bad in [&b"e;"[..], b"nE;", b"E", b"x;", b"En;", b"npn;", b"np"] {
            assert!(parse_reply(&reply(1.0, bad), 1).is_err());
        }
        for now in [-1.0, 0.5, f64::NAN, f64::INFINITY, 1e18] {
            assert!(parse_reply(&reply(now, b";"), 1).is_err());
        }
    }
}
