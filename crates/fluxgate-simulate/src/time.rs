//! Units of time, and instants as logs write them.

use fluxgate_core::Timestamp;
pub(crate) use fluxgate_core::time::{format_rfc3339, parse_rfc3339};

/// Units of time, in microseconds.
pub(crate) const MILLISECOND: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Parses `10/Oct/2000:13:55:36 -0700`, as access logs write it.
pub(crate) fn parse_log_time(text: &str) -> Option<Timestamp> {
    let (day, rest) = text.split_once('/')?;
    let (month, rest) = rest.split_once('/')?;
    let (year, rest) = rest.split_once(':')?;
    let (time, offset) = rest.split_once(' ')?;
    let (hours, minutes) = offset.split_at_checked(3)?;
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    if time.contains('.') {
        return None;
    }
    parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}{hours}:{minutes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_time() {
        let parsed = parse_log_time("10/Oct/2000:13:55:36 -0700");
        assert_eq!(parsed.map(Timestamp::micros), Some(971_211_336_000_000));
        let bad = [
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "10/Oct/2000:13:55:60 -0700",
            "10/Oct/2000:13:55:36.5 -0700",
            "10/Oct/2000:13:55:36 Z",
            "1/Oct/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36 -07:00",
            "-",
        ];
        for text in bad {
            assert_eq!(parse_log_time(text), None, "{text}");
        }
    }
}
