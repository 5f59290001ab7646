//! The days and months of the Gregorian calendar, as numbers.
//!
//! jiff has them too, but the core does without it unless the feature `time-zones` is on.

/// The seconds of an hour.
pub(crate) const HOUR: i64 = 3_600;
/// The seconds of a day.
pub(crate) const DAY: i64 = 86_400;

/// The days of 400 years, after which the calendar repeats, and their months.
const CYCLE: (i64, i64) = (146_097, 4_800);
/// The days from the first of January of the year 0 to the epoch.
const EPOCH: i64 = 719_528;

/// Returns the number of the month that contains a day, counted from January of the year 0.
pub(crate) fn month_of(day: i64) -> i64 {
    let (days, months) = CYCLE;
    // Months have almost the same length, so this is off by one at most.
    let guess = ((day + EPOCH) * months).div_euclid(days);
    (guess - 1..=guess + 1)
        .rev()
        .find(|month| first_day_of(*month) <= day)
        .unwrap_or(guess)
}

/// Returns the first day of a month.
pub(crate) fn first_day_of(month: i64) -> i64 {
    // In a year from March on, the leap day is the last one, and five months have 153 days
    // wherever they begin.
    let since_march = month - 2;
    let (year, month) = (since_march.div_euclid(12), since_march.rem_euclid(12));
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + 60 - EPOCH
}

/// Returns year, month and day of a day counted from 1970.
pub(super) fn civil(day: u64) -> (u64, u64, u64) {
    // No day of a timestamp is further from the epoch than this can count.
    let day = day as i64;
    let month = month_of(day);
    let day_of_month = day - first_day_of(month) + 1;
    (
        month as u64 / 12,
        month as u64 % 12 + 1,
        day_of_month as u64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every day of 800 years, against a calendar that counts the days one by one.
    #[test]
    fn every_day_belongs_to_its_month_and_year() {
        let (mut year, mut month, mut day) = (1800_i64, 1_i64, 1_i64);
        // 170 years before the epoch, 41 of them leap years.
        for number in -(170 * 365 + 41)..365 * 800 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + i64::from(is_leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            assert_eq!(
                month_of(number),
                year * 12 + month - 1,
                "{year}-{month}-{day}"
            );
            assert_eq!(first_day_of(year * 12 + month - 1), number - day + 1);
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!(first_day_of(1970 * 12), 0);
    }
}
