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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::any_bytes::script_reply;
    use super::*;

    fn reply(now: f64, entries: &[u8]) -> Vec<u8> {
        [&[VERSION], &now.to_le_bytes()[..], entries].concat()
    }

    #[test]
    fn nothing_but_a_whole_reply_is_taken() {
        let whole = reply(1.0, b"n;E;N;");
        let answers = parse_reply(&whole, 3).unwrap();
        assert_eq!(answers[1].as_ref().unwrap_err().reason, Reason::BadTypes);
        assert!(answers[0].is_ok() && answers[2].is_ok());
        for count in [0, 1, 2, 4] {
            assert!(parse_reply(&whole, count).is_err());
        }
        for end in 0..whole.len() {
            let error = parse_reply(&whole[..end], 3).unwrap_err();
            assert_eq!(error.reason, Reason::BadResponse);
        }
        for bad in [&b"e;"[..], b"nE;", b"E", b"x;", b"En;"] {
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
        let state = (236..250_u8, numbers(), numbers(), small(), small());
        let state = state.prop_map(|(tag, window, instant, first, second)| {
            let mut bytes = vec![b'b', tag];
            // Windows of the limits above are more likely than others.
            let window = [1_000, 366 * 86_400_000, window][window as usize % 3];
            bytes.extend_from_slice(&window.to_le_bytes()[..5]);
            bytes.extend_from_slice(&instant.to_le_bytes()[..7]);
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&second.to_le_bytes());
            bytes
        });
        let digits = "i[0-9]{16}(051|400|551|[0-9]{3})".prop_map(String::into_bytes);
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
        let of_any_kind = prop_oneof![Just(b"n".to_vec()), state, digits, log];
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
