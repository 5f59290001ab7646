//! How an algorithm and a window are named on the wire and in states.

use fluxgate_core::{Algorithm, Limit};

/// The byte that names an algorithm.
pub(super) const fn tag(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::TokenBucket => 241,
        Algorithm::LeakyBucket => 242,
        Algorithm::FixedWindow => 243,
        Algorithm::SlidingWindow => 244,
        Algorithm::SlidingLog => 245,
    }
}

/// W in whole milliseconds.
pub(super) const fn window_ms(limit: &Limit) -> u64 {
    limit.window().get() / 1000
}

/// What stands where a bucket's window has no code.
pub(super) const NO_CODE: [u8; 3] = *b"---";

/// Three digits for the algorithm and window of a bucket, if the window is one
/// of those that people write: with them its state is an integer to the server,
/// which costs no string. They are part of the layout of states, so they must
/// not change without its version.
pub(super) fn code(limit: &Limit) -> [u8; 3] {
    const LEAKY: u64 = 500;
    let base = match limit.algorithm() {
        Algorithm::TokenBucket => 0,
        Algorithm::LeakyBucket => LEAKY,
        _ => return NO_CODE,
    };
    match window_code(window_ms(limit)) {
        Some(code) => {
            let code = base + code;
            [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8)
        }
        None => NO_CODE,
    }
}

/// Below 500.
fn window_code(millis: u64) -> Option<u64> {
    const SECOND: u64 = 1_000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    // The first that fits: so many of a unit, up to so many, after this code.
    const UNITS: [(u64, u64, u64); 7] = [
        (DAY, 99, 300),
        (HOUR, 23, 250),
        (MINUTE, 59, 150),
        (SECOND, 99, 50),
        (100, 9, 20),
        (10, 9, 10),
        (1, 9, 0),
    ];
    const YEARS: [(u64, u64); 2] = [(365 * DAY, 400), (366 * DAY, 401)];
    let years = YEARS.iter().find(|(year, _)| *year == millis);
    let units = || {
        let mut units = UNITS.iter();
        units.find(|(unit, most, _)| millis.is_multiple_of(*unit) && millis / unit <= *most)
    };
    match (years, units()) {
        (Some((_, code)), _) => Some(*code),
        (_, Some((unit, _, after))) => Some(after + millis / unit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn no_two_windows_share_a_code() {
        let mut seen = HashMap::new();
        let days = (1..=366).map(|days| days * 86_400_000);
        for millis in (1..=7_200_000).chain(days) {
            let Some(code) = window_code(millis) else {
                continue;
            };
            assert!(code < 500, "{millis}");
            let other = seen.insert(code, millis);
            assert!(
                other.is_none_or(|other| other == millis),
                "{millis} {other:?}"
            );
        }
        assert!(seen.len() > 250);
    }

    /// States with these codes are in the databases of users.
    #[test]
    fn the_codes_of_common_windows_never_change() {
        for (millis, code) in [
            (1, 1),
            (10, 11),
            (500, 25),
            (1_000, 51),
            (60_000, 151),
            (90_000, 140),
            (300_000, 155),
            (3_600_000, 251),
            (86_400_000, 301),
            (30 * 86_400_000, 330),
            (365 * 86_400_000, 400),
        ] {
            assert_eq!(window_code(millis), Some(code), "{millis}");
        }
        assert_eq!(window_code(1_001), None);
        assert_eq!(window_code(101_000), None);
    }
}
