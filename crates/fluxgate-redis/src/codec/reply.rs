//! The reply of one call, taken apart.
//!
//! A version byte and the time; then for each request one entry a check and a
//! semicolon. An entry begins with a letter, a small one if the script let the
//! check pass: `n` nothing was stored, `i` the digits of a bucket, `b` a bucket, `o`
//! one with an overhang, `c` counts, `l` what there is to know of a log. `p` behind
//! them: the request has got a place to wait in; `P`: it has to wait and found none,
//! so it was decided without. `E` in their place: something stood at a key that is
//! not ours.

use fluxgate_core::algorithm::{Bucket, Counts, LogSummary, Overhang};
use fluxgate_core::limit::{FracMicros, Horizon, MAX_LOG_UNITS, MAX_UNITS};
use fluxgate_core::{StoreError, Timestamp};

use super::answer::{Answer, Entry, Found};
use super::{bad_response, frame};
use crate::reason;

const VERSION: u8 = 2;
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
                b'p' => {
                    answer.set_place(letter == b'p');
                    return match self.byte()? {
                        b';' => Ok(Ok(answer)),
                        _ => Err(bad_response("an answer goes on after its end")),
                    };
                }
                b'n' => Found::Nothing,
                b'i' => self.digits()?,
                b'b' => self.bucket(false)?,
                b'o' => self.bucket(true)?,
                b'c' => self.counts()?,
                b'l' => self.log()?,
                _ => return Err(bad_response("an entry of no kind")),
            };
            answer.push(Entry {
                passes: letter.is_ascii_lowercase(),
                found,
            });
        }
    }

    /// An instant in 16 digits and a horizon in two.
    fn digits(&mut self) -> Result<Found, StoreError> {
        let digits: [u8; 18] = self.take()?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(bad_response("a bucket of no digits"));
        }
        let number = |digits: &[u8]| {
            let digits = digits.iter();
            digits.fold(0, |number, digit| 10 * number + u64::from(digit - b'0'))
        };
        let (instant, horizon) = digits.split_at(16);
        Ok(Found::Bucket(Bucket {
            full_at: FracMicros {
                whole: number(instant),
                part: 0,
            },
            refill: 1,
            horizon: horizon_of(number(horizon) as u8)?,
            overhang: Overhang::NONE,
        }))
    }

    fn bucket(&mut self, has_overhang: bool) -> Result<Found, StoreError> {
        let tag = self.byte()?;
        let horizon = horizon_of(self.byte()?)?;
        let full_at = FracMicros {
            whole: self.number::<7>()?,
            part: u32::from_le_bytes(self.take()?),
        };
        let refill = u32::from_le_bytes(self.take()?);
        let overhang = match has_overhang {
            true => Overhang::from_bits(u32::from_le_bytes(self.take()?)),
            false => Some(Overhang::NONE),
        };
        match overhang {
            Some(overhang)
                if tag == frame::BUCKET
                    && full_at.part < refill
                    && u64::from(refill) <= MAX_UNITS =>
            {
                Ok(Found::Bucket(Bucket {
                    full_at,
                    refill,
                    horizon,
                    overhang,
                }))
            }
            _ => Err(bad_response("a bucket that cannot be")),
        }
    }

    fn counts(&mut self) -> Result<Found, StoreError> {
        let tag = self.byte()?;
        let counts = Counts {
            start: self.number::<7>()?,
            previous: u32::from_le_bytes(self.take()?),
            current: u32::from_le_bytes(self.take()?),
        };
        let fits = |number: u32| u64::from(number) <= MAX_UNITS;
        match WINDOWS.contains(&tag) && fits(counts.previous) && fits(counts.current) {
            true => Ok(Found::Counts(tag, counts)),
            false => Err(bad_response("counts of no algorithm")),
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

fn horizon_of(exponent: u8) -> Result<Horizon, StoreError> {
    Horizon::from_exponent(exponent).ok_or_else(|| bad_response("a horizon that cannot be"))
}

fn bad_types() -> StoreError {
    StoreError {
        reason: reason::BAD_TYPES,
        message: "something that is not ours stands at a key of this request".into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::any_bytes::script_reply;
    use fluxgate_core::Reason;

    use super::*;

    fn reply(now: f64, entries: &[u8]) -> Vec<u8> {
        [&[VERSION], &now.to_le_bytes()[..], entries].concat()
    }

    #[test]
    fn nothing_but_a_whole_reply_is_taken() {
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

    /// An entry of a right length with anything in it.
    fn entry() -> impl Strategy<Value = Vec<u8>> {
        let numbers = || prop_oneof![any::<u64>(), 0..3_000_000_000_000_000_u64, 0..20_u64];
        let small = || prop_oneof![any::<u32>(), 0..20_u32];
        let counts = (240..247_u8, numbers(), small(), small());
        let counts = counts.prop_map(|(tag, start, previous, current)| {
            let mut bytes = vec![b'c', tag];
            // Starts of windows are more likely than others.
            let start = [start, start - start % 1_000_000][start as usize % 2];
            bytes.extend_from_slice(&start.to_le_bytes()[..7]);
            bytes.extend_from_slice(&previous.to_le_bytes());
            bytes.extend_from_slice(&current.to_le_bytes());
            bytes
        });
        let bucket = (
            240..243_u8,
            0..53_u8,
            numbers(),
            small(),
            small(),
            any::<Option<u32>>(),
        );
        let bucket = bucket.prop_map(|(tag, horizon, instant, part, refill, overhang)| {
            let letter = if overhang.is_some() { b'o' } else { b'b' };
            let mut bytes = vec![letter, tag, horizon];
            bytes.extend_from_slice(&instant.to_le_bytes()[..7]);
            bytes.extend_from_slice(&part.to_le_bytes());
            bytes.extend_from_slice(&refill.to_le_bytes());
            bytes.extend(overhang.iter().flat_map(|bits| bits.to_le_bytes()));
            bytes
        });
        let digits = "i[0-9]{16}(0[0-9]|[1-5][0-9])".prop_map(String::into_bytes);
        let whole = || {
            let bits = any::<u64>().prop_map(f64::from_bits);
            prop_oneof![
                1 => bits,
                3 => (-3_000_000_000_000_000..3_000_000_000_000_000_i64).prop_map(|n| n as f64),
                3 => (0..100_000_i64).prop_map(|n| n as f64),
            ]
        };
        let log = (whole(), whole(), whole()).prop_map(|(newest, counted, leaves)| {
            let numbers = [newest, counted, leaves].map(f64::to_le_bytes);
            [&b"l"[..], &numbers.concat()].concat()
        });
        let of_any_kind = prop_oneof![Just(b"n".to_vec()), bucket, counts, digits, log];
        (of_any_kind, any::<bool>()).prop_map(|(mut entry, passes)| {
            if !passes {
                entry[0] = entry[0].to_ascii_uppercase();
            }
            entry
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 5_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            script_reply(&bytes);
        }

        #[test]
        fn no_numbers_make_it_panic(
            now in prop_oneof![0..4_000_000_000_000_000_u64, 0..20_u64],
            entries in prop::collection::vec(entry(), 1..3),
        ) {
            script_reply(&reply(now as f64, &[&entries.concat()[..], b";"].concat()));
        }
    }
}
