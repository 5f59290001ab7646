//! Instants as logs write them.

use fluxgate_core::Timestamp;

/// A date, a time of day and an offset, as written.
struct Written {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    offset_minutes: i64,
}

impl Written {
    fn timestamp(&self) -> Option<Timestamp> {
        let days_in_month = match self.month {
            2 if is_leap(self.year) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let is_good = (1..=days_in_month).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        if !is_good {
            return None;
        }
        let first = first_of_month(self.year, self.month);
        let days = first + self.day - 1;
        let minutes = days * 1440 + self.hour * 60 + self.minute - self.offset_minutes;
        // A leap second is the first of the next minute, which begins a month.
        let months = [first, first + days_in_month];
        if self.second == 60 && months.iter().all(|first| first * 1440 != minutes + 1) {
            return None;
        }
        let micros = (minutes * 60 + self.second) * 1_000_000 + self.micros;
        Timestamp::from_micros(u64::try_from(micros).ok()?)
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// From the first day of 1970.
fn first_of_month(year: i64, month: i64) -> i64 {
    days_before_year(year) - days_before_year(1970) + days_before_month(year, month)
}

/// From the first day of the year 0.
fn days_before_year(year: i64) -> i64 {
    let last = year - 1;
    year * 365 + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400)
}

fn days_before_month(year: i64, month: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_day = i64::from(month > 2 && is_leap(year));
    BEFORE[month as usize - 1] + leap_day
}

/// `2026-01-31T23:59:59.123456789+01:00`; digits below a microsecond are cut off.
pub(super) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let mut rest = text.as_bytes();
    let year = digits(&mut rest, 4)?;
    expect(&mut rest, b"-")?;
    let month = digits(&mut rest, 2)?;
    expect(&mut rest, b"-")?;
    let day = digits(&mut rest, 2)?;
    expect(&mut rest, b"Tt ")?;
    let hour = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let minute = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let second = digits(&mut rest, 2)?;
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
    let written = Written {
        year,
        month,
        day,
        hour,
        minute,
        second,
        micros,
        offset_minutes,
    };
    written.timestamp().filter(|_| rest.is_empty())
}

/// `10/Oct/2000:13:55:36 -0700`, as access logs have it.
pub(super) fn parse_log_time(text: &str) -> Option<Timestamp> {
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let mut rest = text.as_bytes();
    let day = digits(&mut rest, 2)?;
    expect(&mut rest, b"/")?;
    let (name, after) = rest.split_at_checked(3)?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    rest = after;
    expect(&mut rest, b"/")?;
    let year = digits(&mut rest, 4)?;
    expect(&mut rest, b":")?;
    let hour = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let minute = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let second = digits(&mut rest, 2)?;
    expect(&mut rest, b" ")?;
    let sign = expect(&mut rest, b"+-")?;
    let hours = digits(&mut rest, 2)?;
    let offset_minutes = signed_offset(sign, hours, digits(&mut rest, 2)?)?;
    let written = Written {
        year,
        month,
        day,
        hour,
        minute,
        second,
        micros: 0,
        offset_minutes,
    };
    written.timestamp().filter(|_| rest.is_empty())
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

    #[test]
    fn log_time() {
        let parsed = parse_log_time("10/Oct/2000:13:55:36 -0700");
        assert_eq!(parsed.map(Timestamp::micros), Some(971_211_336_000_000));
        let bad = [
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "10/Oct/2000:13:55:60 -0700",
            "-",
        ];
        for text in bad {
            assert_eq!(parse_log_time(text), None, "{text}");
        }
    }
}
