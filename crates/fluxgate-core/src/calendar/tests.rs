use super::*;

fn micros(time: &str) -> u64 {
    let time: jiff::Timestamp = time.parse().unwrap();
    u64::try_from(time.as_microsecond()).unwrap()
}

/// Returns the start and the end of the window that contains a time, in UTC.
fn window(unit: CalendarUnit, zone: &str, time: &str) -> (String, String) {
    let calendar = Calendar::new(unit).in_time_zone(zone.parse().unwrap());
    let at = Timestamp::from_micros(micros(time)).unwrap();
    let Window { start, end } = calendar.window_at(at);
    let text = |micros: u64| {
        let time = jiff::Timestamp::from_microsecond(micros.try_into().unwrap());
        time.unwrap().to_string()
    };
    (text(start), text(end))
}

/// Cases by hand, from the published rules of the zones: the unit, the zone, an instant,
/// and the start and the end of its window.
const CASES: &str = "
    day   UTC                  2026-11-16T00:00:00Z         2026-11-16T00:00:00Z 2026-11-17T00:00:00Z
    day   UTC                  2026-11-16T23:59:59.999999Z  2026-11-16T00:00:00Z 2026-11-17T00:00:00Z
    day   Asia/Seoul           2026-11-16T14:59:59.999999Z  2026-11-15T15:00:00Z 2026-11-16T15:00:00Z
    month Asia/Seoul           2024-02-29T14:00:00Z         2024-01-31T15:00:00Z 2024-02-29T15:00:00Z
    year  Asia/Seoul           2026-12-31T15:00:00Z         2026-12-31T15:00:00Z 2027-12-31T15:00:00Z
    week  UTC                  2026-11-15T23:00:00Z         2026-11-09T00:00:00Z 2026-11-16T00:00:00Z
    week  UTC                  2027-01-01T00:00:00Z         2026-12-28T00:00:00Z 2027-01-04T00:00:00Z

    # Days of 23 and 25 hours.
    day   America/New_York     2026-03-08T12:00:00Z         2026-03-08T05:00:00Z 2026-03-09T04:00:00Z
    day   America/New_York     2026-11-01T12:00:00Z         2026-11-01T04:00:00Z 2026-11-02T05:00:00Z

    # Midnight is skipped: the day begins at 01:00.
    day   America/Sao_Paulo    2018-11-04T12:00:00Z         2018-11-04T03:00:00Z 2018-11-05T02:00:00Z
    # At midnight the clocks went back to 23:00.
    day   America/Sao_Paulo    2018-02-18T02:30:00Z         2018-02-17T02:00:00Z 2018-02-18T03:00:00Z
    # At 00:01 they went back to 23:01: midnight occurs twice, and the first one counts.
    day   America/St_Johns     2006-10-29T02:30:00Z         2006-10-29T02:30:00Z 2006-10-30T03:30:00Z
    day   America/St_Johns     2006-10-29T03:00:00Z         2006-10-29T02:30:00Z 2006-10-30T03:30:00Z
    day   America/St_Johns     2006-10-29T02:29:59Z         2006-10-28T02:30:00Z 2006-10-29T02:30:00Z
    hour  America/St_Johns     2006-10-29T02:30:30Z         2006-10-29T02:30:00Z 2006-10-29T02:31:00Z
    hour  America/St_Johns     2006-10-29T03:00:00Z         2006-10-29T02:31:00Z 2006-10-29T03:30:00Z
    # Samoa left out a day.
    day   Pacific/Apia         2011-12-30T09:59:59Z         2011-12-29T10:00:00Z 2011-12-30T10:00:00Z
    day   Pacific/Apia         2011-12-30T10:00:00Z         2011-12-30T10:00:00Z 2011-12-31T10:00:00Z

    # Half an hour forward, and back.
    hour  Australia/Lord_Howe  2026-10-03T15:45:00Z         2026-10-03T15:30:00Z 2026-10-03T16:00:00Z
    hour  Australia/Lord_Howe  2026-04-04T14:30:00Z         2026-04-04T14:00:00Z 2026-04-04T15:00:00Z
    hour  Australia/Lord_Howe  2026-04-04T15:00:00Z         2026-04-04T15:00:00Z 2026-04-04T15:30:00Z
    # A repeated hour is two windows.
    hour  America/New_York     2026-11-01T05:59:00Z         2026-11-01T05:00:00Z 2026-11-01T06:00:00Z
    hour  America/New_York     2026-11-01T06:00:00Z         2026-11-01T06:00:00Z 2026-11-01T07:00:00Z
    hour  Asia/Kathmandu       2026-11-16T00:00:00Z         2026-11-15T23:15:00Z 2026-11-16T00:15:00Z

    # What began before the epoch begins with it.
    day   Asia/Seoul           1970-01-01T00:00:00Z         1970-01-01T00:00:00Z 1970-01-01T15:00:00Z
    year  America/New_York     1970-01-01T00:00:00Z         1970-01-01T00:00:00Z 1970-01-01T05:00:00Z
    week  UTC                  1970-01-02T00:00:00Z         1970-01-01T00:00:00Z 1970-01-05T00:00:00Z
";

#[test]
fn windows_begin_and_end_with_the_local_calendar() {
    let mut cases = 0;
    for line in CASES.lines().filter(|line| !line.trim().starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [unit, zone, time, start, end] = words[..] else {
            continue;
        };
        let named = CalendarUnit::NAMES.iter().find(|(name, _)| *name == unit);
        let found = window(named.unwrap().1, zone, time);
        assert_eq!(found, (start.into(), end.into()), "{line}");
        cases += 1;
    }
    assert_eq!(cases, 27);
}

/// Returns the period that an instant belongs to by the definition: that of the latest
/// local date so far. It looks at every minute of the last two days.
fn latest_day(zone: TimeZone, now: i64) -> i64 {
    let local_day = |at: i64| (at + zone.offset_at(at)).div_euclid(DAY);
    let minutes = (0..2 * 24 * 60).map(|minutes| now - 60 * minutes);
    minutes.map(local_day).max().unwrap()
}

/// Around every change of the clocks, in all zones: windows follow each other without a
/// gap, contain their instants and agree with the definition.
#[test]
fn windows_around_every_change_of_the_clocks() {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let zones: Vec<TimeZone> = database
        .available()
        .filter_map(|name| name.as_str().parse().ok())
        .collect();
    assert!(zones.len() > 400);
    let long = std::env::var_os("FLUXGATE_LONG").is_some();
    for (number, zone) in zones.into_iter().enumerate() {
        if !long && number % 23 != 3 {
            continue;
        }
        let changes = zone
            .transitions_after(0)
            .take_while(|(at, _)| *at < 2_000_000_000);
        for (at, _) in changes.step_by(if long { 3 } else { 11 }) {
            check_around(zone, at);
        }
    }
}

fn check_around(zone: TimeZone, change: i64) {
    for unit in [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Month] {
        let calendar = Calendar::new(unit).in_time_zone(zone);
        let mut last: Option<(i64, i64)> = None;
        for now in (change - 5_400..change + 5_400).step_by(600) {
            let (start, end) = match unit {
                CalendarUnit::Hour => calendar.find_hour(now),
                _ => calendar.find_days(now),
            };
            let place = format!("{unit:?} {zone} {now}");
            assert!(start <= now && now < end, "{place}");
            if let Some((last_start, last_end)) = last {
                let is_same = (start, end) == (last_start, last_end);
                assert!(is_same || start >= last_end, "{place}");
            }
            last = Some((start, end));
            if unit == CalendarUnit::Hour {
                assert!(end - start <= HOUR, "{place}");
                let offset = zone.offset_at(now);
                assert_eq!(zone.offset_at(start), offset, "{place}");
                assert_eq!(zone.offset_at(end - 1), offset, "{place}");
                let hour = |at: i64| (at + offset).div_euclid(HOUR);
                assert_eq!(
                    (hour(start), hour(end - 1)),
                    (hour(now), hour(now)),
                    "{place}"
                );
                continue;
            }
            let period = |at: i64| unit.period_of(latest_day(zone, at));
            assert_eq!(period(start), period(now), "{place}");
            assert_eq!(period(end - 1), period(now), "{place}");
            assert_ne!(period(start - 1), period(now), "{place}");
            assert_ne!(period(end), period(now), "{place}");
        }
    }
}

#[test]
fn names_are_those_of_the_database() {
    for name in [
        "Asia/Seoul",
        "Europe/Berlin",
        "America/Argentina/Buenos_Aires",
        "Etc/GMT+5",
        "UTC",
    ] {
        let zone: TimeZone = name.parse().unwrap();
        assert_eq!(zone.name(), name);
        assert_eq!(zone, name.parse().unwrap());
    }
    for name in [
        "",
        "asia/seoul",
        "Seoul",
        "KST",
        "+09:00",
        "Etc/Unknown",
        "Asia/Seoul ",
    ] {
        assert!(name.parse::<TimeZone>().is_err(), "{name:?}");
    }
}

#[test]
fn the_last_instant_has_a_window() {
    for unit in CalendarUnit::NAMES.map(|(_, unit)| unit) {
        for zone in ["UTC", "Pacific/Kiritimati", "America/New_York"] {
            let calendar = Calendar::new(unit).in_time_zone(zone.parse().unwrap());
            let window = calendar.window_at(Timestamp::MAX);
            assert!(window.contains(Timestamp::MAX.micros()), "{unit:?} {zone}");
        }
    }
}

#[test]
fn weeks_begin_on_monday() {
    // 2026-11-16 is a Monday.
    let monday = 20_773;
    let week = CalendarUnit::Week.period_of(monday);
    assert_eq!(CalendarUnit::Week.first_day(week), monday);
    assert_eq!(CalendarUnit::Week.period_of(monday + 6), week);
    assert_eq!(CalendarUnit::Week.period_of(monday - 1), week - 1);
}
