//! Durations as rules write them: `500ms 1s 90s 5m 1h 1d`.

use std::time::Duration;

use crate::limit::{MAX_SPAN, MIN_SPAN};

/// A number and a unit, in the domain of windows.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let millis = number.parse::<u64>().ok()?.checked_mul(unit_millis)?;
    let span = Duration::from_millis(millis);
    (MIN_SPAN.as_duration()..=MAX_SPAN.as_duration())
        .contains(&span)
        .then_some(span)
}

/// What [`parse`] takes, for error messages.
pub(super) const ALLOWED: &str =
    "a whole number with a unit (ms, s, m, h or d) from 1ms to 366d, such as 500ms or 5m";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(parse("1ms"), Some(Duration::from_millis(1)));
        assert_eq!(parse("90s"), Some(Duration::from_secs(90)));
        assert_eq!(parse("366d"), Some(Duration::from_secs(366 * 86_400)));
    }

    #[test]
    fn refusals() {
        let bad = [
            "",
            "1",
            "s",
            "0s",
            "1.5s",
            "-1s",
            "+1s",
            "1S",
            " 1s",
            "1s ",
            "1m30s",
            "1us",
            "367d",
            "99999999999999999999d",
            "18446744073709551615d",
            "1w",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
