//! Instants as rules write them.

use super::dates::{civil, first_day_of};
use super::span::Timestamp;

/// Units of time, in microseconds.
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A date, a time of day and an offset from UTC.
struct CivilTime {
    year: i64,
    month: i64,
    day: i64,
    /// Hour, minute and second.
    time_of_day: [i64; 3],
    micros: i64,
    offset_minutes: i64,
}

impl CivilTime {
    fn timestamp(&self) -> Option<Timestamp> {
        if !(1..=12).contains(&self.month) {
            return None;
        }
        let month = self.year * 12 + self.month - 1;
        let (this_month, next_month) = (first_day_of(month), first_day_of(month + 1));
        let days = this_month + self.day - 1;
        let [hour, minute, second] = self.time_of_day;
        let is_valid = (this_month..next_month).contains(&days) && hour < 24 && minute < 60;
        if !is_valid || second > 60 {
            return None;
        }
        let minutes = days * 1440 + hour * 60 + minute - self.offset_minutes;
        // A leap second comes just before the first minute of a month.
        let mut months = [this_month, next_month].into_iter();
        if second == 60 && !months.any(|month| month * 1440 == minutes + 1) {
            return None;
        }
        let micros = (minutes * 60 + second) * 1_000_000 + self.micros;
        Timestamp::from_micros(u64::try_from(micros).ok()?)
    }
}

/// Formats an instant as `2026-01-31T23:59:59Z`, with the microseconds if it has any.
pub fn format_rfc3339(at: Timestamp) -> String {
    let micros = at.micros();
    let (year, month, day) = civil(micros / DAY);
    let (hour, minute) = (micros % DAY / HOUR, micros % HOUR / MINUTE);
    let second = micros % MINUTE / SECOND;
    let fraction = match micros % SECOND {
        0 => String::new(),
        fraction => format!(".{fraction:06}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Parses `2026-01-31T23:59:59.123456789+01:00`. Digits below a microsecond are cut
/// off.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let mut rest = text.as_bytes();
    let year = digits(&mut rest, 4)?;
    expect(&mut rest, b"-")?;
    let month = digits(&mut rest, 2)?;
    expect(&mut rest, b"-")?;
    let day = digits(&mut rest, 2)?;
    expect(&mut rest, b"Tt ")?;
    let time_of_day = time_of_day(&mut rest)?;
    let mut micros = 0;
    if expect(&mut rest, b".").is_some() {
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, after) = rest.split_at(count);
        if fraction.is_empty() {
            return None;
        }
        let kept = fraction.iter().chain([b'0'; 6].iter()).take(6);
        micros = kept.fold(0, |micros, digit| micros * 10 + i64::from(digit - b'0'));
        rest = after;
    }
    let offset_minutes = match expect(&mut rest, b"Zz+-")? {
        sign @ (b'+' | b'-') => {
            let hours = digits(&mut rest, 2)?;
            expect(&mut rest, b":")?;
            signed_offset(sign, hours, digits(&mut rest, 2)?)?
        }
        _ => 0,
    };
    let time = CivilTime {
        year,
        month,
        day,
        time_of_day,
        micros,
        offset_minutes,
    };
    time.timestamp().filter(|_| rest.is_empty())
}

/// Reads `13:55:36`.
fn time_of_day(rest: &mut &[u8]) -> Option<[i64; 3]> {
    let hour = digits(rest, 2)?;
    expect(rest, b":")?;
    let minute = digits(rest, 2)?;
    expect(rest, b":")?;
    Some([hour, minute, digits(rest, 2)?])
}

fn signed_offset(sign: u8, hours: i64, minutes: i64) -> Option<i64> {
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = hours * 60 + minutes;
    Some(if sign == b'-' { -offset } else { offset })
}

fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (number, after) = rest.split_at_checked(count)?;
    *rest = after;
    number.iter().try_fold(0, |value, byte| {
        byte.is_ascii_digit()
            .then(|| value * 10 + i64::from(byte - b'0'))
    })
}

fn expect(rest: &mut &[u8], any_of: &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    if !any_of.contains(first) {
        return None;
    }
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_parsed_back_as_itself() {
        let shown = |micros| format_rfc3339(Timestamp::from_micros(micros).unwrap());
        assert_eq!(shown(0), "1970-01-01T00:00:00Z");
        assert_eq!(shown(1_769_903_999_050_000), "2026-01-31T23:59:59.050000Z");
        for micros in (0..Timestamp::MAX.micros()).step_by(7_777_777_777_777_777) {
            let read = parse_rfc3339(&shown(micros)).map(|at| at.micros());
            assert_eq!(read, Some(micros));
        }
    }

    #[test]
    fn rfc3339() {
        let good = [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1969-12-31T23:00:00-01:00", 0),
            ("2000-02-29T12:34:56.7Z", 951_827_696_700_000),
            ("2026-11-15T02:25:48.1234567890123z", 1_794_709_548_123_456),
            ("2024-12-31t23:59:60Z", 1_735_689_600_000_000),
            ("2016-06-30T23:59:60.5Z", 1_467_331_200_500_000),
            ("2017-01-01T00:59:60+01:00", 1_483_228_800_000_000),
            ("2016-12-31T18:59:60-05:00", 1_483_228_800_000_000),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ];
        for (text, micros) in good {
            let parsed = parse_rfc3339(text).map(Timestamp::micros);
            assert_eq!(parsed, Some(micros), "{text}");
        }
        let bad = [
            "",
            "1969-12-31T23:59:59Z",
            "2025-02-29T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-00-01T00:00:00Z",
            "2025-01-01T24:00:00Z",
            "2025-01-01T00:00:61Z",
            "2025-01-01T00:00:60Z",
            "2025-01-30T23:59:60Z",
            "2025-01-31T23:58:60Z",
            "2025-01-31T23:59:60+01:00",
            "2025-01-31T23:59:60-01:00",
            "2025-01-01T00:00:00",
            "2025-01-01T00:00:00.Z",
            "2025-01-01T00:00:00+0100",
            "2025-01-01T00:00:00+24:00",
            "2025-01-01T00:00:00Zx",
            "2025-01-01",
            "10000-01-01T00:00:00Z",
        ];
        for text in bad {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
