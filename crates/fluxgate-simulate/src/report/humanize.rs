//! Numbers, durations and instants in readable form.

use fluxgate_core::Timestamp;

use crate::time::{DAY, HOUR, MILLISECOND, MINUTE, SECOND, format_rfc3339};

/// Formats `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats `1500` as `1.5k`, which is exact for the round numbers on an axis.
pub(super) fn abbreviated(number: u64) -> String {
    let units = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| number >= *unit) else {
        return number.to_string();
    };
    match number % unit * 10 / unit {
        0 => format!("{}{name}", number / unit),
        tenth => format!("{}.{tenth}{name}", number / unit),
    }
}

/// Formats the share of `part` in `whole` as `33.3 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Formats a duration by its two largest units: `3 min 20 s`.
pub(super) fn duration(micros: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (DAY, "d"),
        (HOUR, "h"),
        (MINUTE, "min"),
        (SECOND, "s"),
        (MILLISECOND, "ms"),
        (1, "µs"),
    ];
    let largest = UNITS.iter().position(|(unit, _)| micros >= *unit);
    let Some(largest) = largest else {
        return "0 s".into();
    };
    let (unit, name) = UNITS[largest];
    let mut text = format!("{} {name}", micros / unit);
    if let Some((smaller, name)) = UNITS.get(largest + 1) {
        match micros % unit / smaller {
            0 => {}
            rest => text += &format!(" {rest} {name}"),
        }
    }
    text
}

/// Formats a date as `2026-01-31`.
pub(super) fn date(micros: u64) -> String {
    let mut text = format_rfc3339(Timestamp::saturating_from_micros(micros));
    text.truncate("2026-01-31".len());
    text
}

/// Formats a time of day as `23:59`, with seconds and milliseconds if `step` needs
/// them.
pub(super) fn time_of_day(micros: u64, step: u64) -> String {
    let rest = micros % DAY;
    let (hour, minute) = (rest / HOUR, rest % HOUR / MINUTE);
    let (second, milli) = (rest % MINUTE / SECOND, rest % SECOND / MILLISECOND);
    if step.is_multiple_of(MINUTE) {
        format!("{hour:02}:{minute:02}")
    } else if step.is_multiple_of(SECOND) {
        format!("{hour:02}:{minute:02}:{second:02}")
    } else {
        format!("{hour:02}:{minute:02}:{second:02}.{milli:03}")
    }
}

/// Formats a minute and five seconds as `1:05`, with hours and milliseconds if they
/// are needed.
pub(super) fn elapsed(micros: u64, step: u64) -> String {
    let (hours, minutes) = (micros / HOUR, micros % HOUR / MINUTE);
    let (seconds, millis) = (micros % MINUTE / SECOND, micros % SECOND / MILLISECOND);
    let mut text = match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    };
    if !step.is_multiple_of(SECOND) {
        text += &format!(".{millis:03}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_rfc3339;

    #[test]
    fn numbers_are_grouped_abbreviated_or_shares() {
        let shown = [0, 7, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "7", "999", "1,000", "1,234,567"]);
        let shown = [0, 999, 1_000, 1_500, 20_000, 2_500_000].map(abbreviated);
        assert_eq!(shown, ["0", "999", "1k", "1.5k", "20k", "2.5M"]);
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "0.0 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0 %");
    }

    #[test]
    fn durations_have_two_units() {
        let shown = [0, 1, 1_500, 200 * SECOND, HOUR, 3 * DAY + 5 * MINUTE].map(duration);
        let expected = ["0 s", "1 µs", "1 ms 500 µs", "3 min 20 s", "1 h", "3 d"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_date_is_parsed_back_as_itself() {
        for day in (0..2_932_897)
            .step_by(97)
            .chain([789, 790, 11_016, 2_932_896])
        {
            let text = format!("{}T00:00:00Z", date(day * DAY));
            let read = parse_rfc3339(&text).map(|at| at.micros());
            assert_eq!(read, Some(day * DAY), "{text}");
        }
    }

    #[test]
    fn a_time_of_day_is_as_fine_as_the_step() {
        let at = HOUR + 2 * MINUTE + 3 * SECOND + 4 * MILLISECOND;
        let shown = [MINUTE, 15 * SECOND, 500 * MILLISECOND].map(|step| time_of_day(at, step));
        assert_eq!(shown, ["01:02", "01:02:03", "01:02:03.004"]);
        let shown = [MINUTE, 500 * MILLISECOND].map(|step| elapsed(at, step));
        assert_eq!(shown, ["1:02:03", "1:02:03.004"]);
        assert_eq!(elapsed(65 * SECOND, SECOND), "1:05");
    }
}
