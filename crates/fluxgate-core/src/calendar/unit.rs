//! The lengths of calendar windows.

use crate::time::Micros;
use crate::time::dates::{DAY, HOUR, first_day_of, month_of};

/// The length of a calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CalendarUnit {
    /// One stretch of a local hour at one offset from UTC: an hour that is repeated is two
    /// windows.
    Hour,
    /// A local day, which may have 23 or 25 hours.
    Day,
    /// A local ISO week, from Monday.
    Week,
    /// A local month.
    Month,
    /// A local year.
    Year,
}

impl CalendarUnit {
    /// The names that rules use.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
        ("year", Self::Year),
    ];

    /// Returns its name in rules.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Returns the usual length: that of a month is 30 days, that of a year 365.
    pub(crate) const fn nominal(self) -> Micros {
        let seconds = match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        };
        Micros::new(seconds as u64 * 1_000_000)
    }
}

impl CalendarUnit {
    /// Returns the number of the period that contains a day, counted from the epoch.
    pub(super) fn period_of(self, day: i64) -> i64 {
        match self {
            Self::Hour | Self::Day => day,
            // The epoch was a Thursday.
            Self::Week => (day + 3).div_euclid(7),
            Self::Month => month_of(day),
            Self::Year => month_of(day).div_euclid(12),
        }
    }

    /// Returns the first day of a period.
    pub(super) fn first_day(self, period: i64) -> i64 {
        match self {
            Self::Hour | Self::Day => period,
            Self::Week => period * 7 - 3,
            Self::Month => first_day_of(period),
            Self::Year => first_day_of(period * 12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_monday() {
        // 2026-11-16 is a Monday.
        let monday = 20_773;
        let week = CalendarUnit::Week.period_of(monday);
        assert_eq!(CalendarUnit::Week.first_day(week), monday);
        assert_eq!(CalendarUnit::Week.period_of(monday + 6), week);
        assert_eq!(CalendarUnit::Week.period_of(monday - 1), week - 1);
    }
}
