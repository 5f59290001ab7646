//! Calendar windows: the hour, day, week, month or year of a time zone that an instant
//! falls into.
//!
//! Everything is in whole seconds, because no offset has a fraction of one.

mod time_zone;

use std::cell::Cell;

use crate::time::dates::{DAY, HOUR, first_day_of, month_of};
use crate::time::{Micros, Timestamp};
pub use time_zone::{TimeZone, UnknownTimeZone};

/// Windows of a calendar in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    pub(crate) unit: CalendarUnit,
    pub(crate) time_zone: TimeZone,
}

/// A window, in microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant; the epoch if it is before that.
    pub start: u64,
    /// The first instant after it.
    pub end: u64,
}

impl Window {
    /// Returns whether the window contains this instant.
    pub const fn contains(&self, micros: u64) -> bool {
        self.start <= micros && micros < self.end
    }
}

/// How many windows a thread caches.
const CACHED: usize = 4;

thread_local! {
    /// The windows found last. To find one takes much longer than a decision.
    static CACHE: Cell<[Option<(Calendar, Window)>; CACHED]> = const { Cell::new([None; CACHED]) };
}

impl Calendar {
    /// Creates the windows of this unit in UTC.
    pub const fn new(unit: CalendarUnit) -> Self {
        Self {
            unit,
            time_zone: TimeZone::UTC,
        }
    }

    /// Sets the time zone.
    #[must_use]
    pub const fn in_time_zone(mut self, time_zone: TimeZone) -> Self {
        self.time_zone = time_zone;
        self
    }

    /// Returns the length of the windows.
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// Returns the time zone.
    pub const fn time_zone(&self) -> TimeZone {
        self.time_zone
    }

    /// Returns the window that contains an instant.
    pub fn window_at(&self, at: Timestamp) -> Window {
        let micros = at.micros();
        let cached = CACHE.try_with(|cache| {
            let mut windows = cache.get();
            let is_wanted = |cached: &&Option<(Self, Window)>| {
                cached.is_some_and(|(of, window)| of == *self && window.contains(micros))
            };
            if let Some((_, window)) = windows.iter().find(is_wanted).copied().flatten() {
                return window;
            }
            let window = self.find_window(micros);
            windows.rotate_right(1);
            windows[0] = Some((*self, window));
            cache.set(windows);
            window
        });
        // A thread that is ending has no cache any more.
        cached.unwrap_or_else(|_| self.find_window(micros))
    }

    fn find_window(&self, micros: u64) -> Window {
        let now = (micros / 1_000_000) as i64;
        let (start, end) = match self.unit {
            CalendarUnit::Hour => self.find_hour(now),
            _ => self.find_days(now),
        };
        let micros = |seconds: i64| u64::try_from(seconds).unwrap_or(0) * 1_000_000;
        Window {
            start: micros(start),
            end: micros(end),
        }
    }

    /// A window begins at the first instant whose local date has reached its first day. So
    /// it does not end if the clocks go back across midnight, and an instant whose local
    /// date is repeated belongs to the later day.
    fn find_days(&self, now: i64) -> (i64, i64) {
        let zone = self.time_zone;
        let local_day = (now + zone.offset_at(now)).div_euclid(DAY);
        let mut period = self.unit.period_of(local_day);
        let mut start = zone.first_instant(self.unit.first_day(period) * DAY);
        loop {
            let end = zone.first_instant(self.unit.first_day(period + 1) * DAY);
            if now < end {
                return (start, end);
            }
            (start, period) = (end, period + 1);
        }
    }

    fn find_hour(&self, now: i64) -> (i64, i64) {
        let zone = self.time_zone;
        let mut offset = zone.offset_at(now);
        let full = now - (now + offset).rem_euclid(HOUR);
        let (mut start, mut end) = (full, full + HOUR);
        offset = zone.offset_at(full);
        for (at, next) in zone.transitions_after(full) {
            if at >= end {
                break;
            }
            if next != offset {
                if at > now {
                    end = at;
                    break;
                }
                start = at;
            }
            offset = next;
        }
        (start, end)
    }
}

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

    /// Returns the number of the period that contains a day, counted from the epoch.
    fn period_of(self, day: i64) -> i64 {
        match self {
            Self::Hour | Self::Day => day,
            // The epoch was a Thursday.
            Self::Week => (day + 3).div_euclid(7),
            Self::Month => month_of(day),
            Self::Year => month_of(day).div_euclid(12),
        }
    }

    /// Returns the first day of a period.
    fn first_day(self, period: i64) -> i64 {
        match self {
            Self::Hour | Self::Day => period,
            Self::Week => period * 7 - 3,
            Self::Month => first_day_of(period),
            Self::Year => first_day_of(period * 12),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "time-zones")]
mod tests;
