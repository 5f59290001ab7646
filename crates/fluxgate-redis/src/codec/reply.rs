//! The reply of one call, taken apart.
//!
//! A version byte and the time; then for each request one entry a check and a
//! semicolon. An entry begins with a letter, a small one if the script let the
//! check pass: `n` nothing was stored, `i` the digits of a bucket, `b` a state,
//! `l` what there is to know of a log. `E` in their place: something stood at a
//! key that is not ours.

use fluxgate_core::algorithm::{Bucket, Counts, LogSummary};
use fluxgate_core::limit::{Fine, MAX_LOG_UNITS, MAX_UNITS};
use fluxgate_core::{Reason, StoreError, Timestamp};

use super::answer::{Answer, Entry, Found};
use super::bad_response;

const VERSION: u8 = 1;
/// The first byte of a state beside those of buckets and windows is no state's.
const BUCKETS: std::ops::RangeInclusive<u8> = 241..=242;
const WINDOWS: std::ops::RangeInclusive<u8> = 243..=244;

/// One answer for each of `count` requests, or an error for one whose keys are
/// not ours.
pub(crate) fn parse_reply(
    bytes: &[u8],
    count: usize,
) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
    let mut reader = Reader(bytes);
    if reader.byte()? != VERSION {
        return Err(bad_response("the reply has another version"));
    }
    let now = u64::try_from(reader.whole()?).ok();
    let now = now.and_then(Timestamp::from_micros);
    let now = now.ok_or_else(|| bad_response("the reply has no time"))?;
    let answers = (0..count).map(|_| reader.answer(now)).collect();
    match reader.0 {
        [] => answers,
        _ => Err(bad_response("the reply goes on after its end")),
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn answer(&mut self, now: Timestamp) -> Result<Result<Answer, StoreError>, StoreError> {
        let mut answer = Answer::new(now);
        loop {
            let letter = self.byte()?;
            let found = match letter.to_ascii_lowercase() {
                b';' => return Ok(Ok(answer)),
                b'e' if letter == b'E' && answer.is_empty() => {
                    return match self.byte()? {
                        b';' => Ok(Err(bad_types())),
                        _ => Err(bad_response("an error does not end")),
                    };
                }
                b'n' => Found::Nothing,
                b'i' => self.digits()?,
                b'b' => self.state()?,
                b'l' => self.log()?,
                _ => return Err(bad_response("an entry of no kind")),
            };
            answer.push(Entry {
                passes: letter.is_ascii_lowercase(),
                found,
            });
        }
    }

    /// An instant in 16 digits and a code in three.
    fn digits(&mut self) -> Result<Found, StoreError> {
        let [instant @ .., a, b, c]: [u8; 19] = self.take()?;
        let mut whole = 0;
        for digit in instant {
            if !digit.is_ascii_digit() {
                return Err(bad_response("a bucket of no digits"));
            }
            whole = 10 * whole + u64::from(digit - b'0');
        }
        Ok(Found::Digits {
            whole,
            code: [a, b, c],
        })
    }

    fn state(&mut self) -> Result<Found, StoreError> {
        let tag = self.byte()?;
        let window_ms = self.number::<5>()?;
        let instant = self.number::<7>()?;
        let first = u32::from_le_bytes(self.take()?);
        let second = u32::from_le_bytes(self.take()?);
        let fits = |number: u32| u64::from(number) <= MAX_UNITS;
        if BUCKETS.contains(&tag) && first < second && fits(second) {
            let full_at = Fine {
                whole: instant,
                part: first,
            };
            let refill = second;
            Ok(Found::Bucket(tag, window_ms, Bucket { full_at, refill }))
        } else if WINDOWS.contains(&tag) && fits(first) && fits(second) {
            let counts = Counts {
                start: instant,
                previous: first,
                current: second,
            };
            Ok(Found::Counts(tag, window_ms, counts))
        } else {
            Err(bad_response("a state of no algorithm"))
        }
    }

    fn log(&mut self) -> Result<Found, StoreError> {
        let newest = self.whole()?;
        let counted = u64::try_from(self.whole()?).unwrap_or(u64::MAX);
        let leaves = self.whole()?;
        if counted > MAX_LOG_UNITS {
            return Err(bad_response("a log of too many units"));
        }
        Ok(Found::Log(LogSummary {
            newest: Some(newest),
            counted,
            // Whether it says anything depends on the check.
            leaves: Some(leaves),
        }))
    }

    /// A double that is a whole number.
    fn whole(&mut self) -> Result<i64, StoreError> {
        const MOST: i64 = 1 << 53;
        let number = f64::from_le_bytes(self.take()?);
        // Not a number and what is too large become numbers that are not it.
        let whole = number as i64;
        if whole as f64 == number && (-MOST..MOST).contains(&whole) {
            Ok(whole)
        } else {
            Err(bad_response("no whole number"))
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

fn bad_types() -> StoreError {
    StoreError {
        reason: Reason::BadTypes,
        message: "something that is not ours stands at a key of this request".into(),
    }
}
