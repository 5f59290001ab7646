//! Calendar bands, compared with a model that knows all windows in advance.

use std::ops::Range;

use fluxgate_core::RequestContext;
use fluxgate_core::task::ready;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use proptest::prelude::*;

use crate::support::{
    DAY, DecisionFields, Gate, HOUR, SECOND, START, cases, fields, global, instant, set_of,
};

/// The zones and days around which clocks are set: midnight skipped, repeated and crossed,
/// half an hour, a whole day, a leap day, the ends of ISO weeks and years.
const PLACES: [(&str, &str); 12] = [
    ("UTC", "2024-02-29"),
    ("Asia/Seoul", "2026-12-31"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("America/Sao_Paulo", "2018-02-17"),
    ("America/St_Johns", "2006-10-29"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Apia", "2011-12-31"),
    ("Africa/Cairo", "2024-04-26"),
    ("Europe/Berlin", "2027-01-03"),
];

const UNITS: [&str; 5] = ["hour", "day", "week", "month", "year"];

fn micros(time: Timestamp) -> u64 {
    time.as_microsecond().try_into().unwrap()
}

/// Returns the first instant of a local day, or of the next one if there is no such day.
fn first_of(date: Date, zone: &TimeZone) -> u64 {
    let zoned = date.to_zoned(zone.clone()).unwrap();
    micros(zoned.start_of_day().unwrap().timestamp())
}

/// Returns the starts of all windows from some years before a day to some years after it.
fn starts(unit: &str, zone: &TimeZone, day: Date) -> Vec<u64> {
    let mut starts: Vec<u64> = match unit {
        "hour" => hours(zone, day),
        _ => {
            let (first, step) = match unit {
                "day" => (day - 10.days(), 1.day()),
                "week" => {
                    let monday = i64::from(day.weekday().to_monday_zero_offset());
                    (day - monday.days() - 5.weeks(), 1.week())
                }
                "month" => (day.first_of_month() - 4.months(), 1.month()),
                _ => (day.first_of_year() - 3.years(), 1.year()),
            };
            (0..24_i64)
                .map(|number| first_of(first + step * number, zone))
                .collect()
        }
    };
    starts.dedup();
    starts
}

/// Every full hour of local time, and every change of the offset.
fn hours(zone: &TimeZone, day: Date) -> Vec<u64> {
    let from = (day - 5.days()).to_zoned(zone.clone()).unwrap();
    let mut starts = Vec::new();
    let mut last: Option<Zoned> = None;
    for minute in 0..10 * 24 * 60_i64 {
        let now = &from + minute.minutes();
        let is_new = last.as_ref().is_none_or(|last| {
            let hour = |at: &Zoned| (at.date(), at.hour(), at.offset());
            hour(last) != hour(&now)
        });
        if is_new {
            starts.push(micros(now.timestamp()));
        }
        last = Some(now);
    }
    starts
}

/// A count in one of the windows.
struct Model {
    starts: Vec<u64>,
    capacity: u64,
    window: usize,
    count: u64,
}

impl Model {
    /// Returns the number of the window that contains an instant.
    fn window_at(&self, now: u64) -> usize {
        self.starts.partition_point(|start| *start <= now) - 1
    }

    /// Returns the window to decide in, and its count. What is charged is kept in it.
    fn settle(&mut self, now: u64) -> (usize, u64) {
        let current = self.window_at(now);
        if self.window > current + 1 {
            // The clock went back by more than a window.
            self.window = current;
        }
        match self.window < current {
            true => (current, 0),
            false => (self.window, self.count),
        }
    }

    /// Decides a request; returns all fields.
    fn decide(&mut self, now: u64, cost: u64, takes: bool) -> DecisionFields {
        let (window, mut count) = self.settle(now);
        let until_end = self.starts[window + 1] - now;
        let passes = count + cost <= self.capacity;
        if passes && takes && cost > 0 {
            count += cost;
            (self.window, self.count) = (window, count);
        }
        let never = cost > self.capacity;
        let band = || Some("b0".to_owned());
        DecisionFields {
            allowed: passes,
            outcome: match (passes, never) {
                (true, _) => "allowed",
                (false, true) => "never",
                (false, false) => "denied",
            },
            rule: Some("r".into()),
            band: band(),
            limit: Some(self.capacity),
            remaining: Some(self.capacity.saturating_sub(count)),
            retry: match (passes, never) {
                (true, _) => Some(0),
                (false, true) => None,
                (false, false) => Some(until_end),
            },
            reset: if count > 0 { until_end } else { 0 },
            delay: 0,
            violated: if passes { vec![] } else { vec!["r/b0".into()] },
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Back(u64),
    /// To just before, at or after the start of a window nearby.
    Boundary(i8, i8),
    Take(u64),
    Peek(u64),
    Refund(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = || prop_oneof![0..10 * SECOND, 0..2 * HOUR, 0..3 * DAY];
    let step = prop_oneof![
        2 => span().prop_map(Step::Advance),
        1 => span().prop_map(Step::Back),
        3 => (-2..3_i8, -1..2_i8).prop_map(|(window, offset)| Step::Boundary(window, offset)),
        6 => (0..5_u64).prop_map(Step::Take),
        2 => (0..9_u64).prop_map(Step::Peek),
        1 => (0..3_u64).prop_map(Step::Refund),
    ];
    prop::collection::vec(step, 1..40)
}

fn request(cost: u64) -> RequestContext<'static> {
    RequestContext::builder().cost(cost).build()
}

fn run(place: usize, unit: usize, steps: &[Step]) -> Result<(), TestCaseError> {
    let (name, day) = PLACES[place];
    let (zone, day) = (TimeZone::get(name).unwrap(), day.parse::<Date>().unwrap());
    let unit = UNITS[unit];
    let gate = Gate::new(&global(&format!(
        "algorithm: fixed_window, \
         bands: [{{ capacity: 7, calendar: {unit}, time_zone: {name} }}]"
    )));
    let starts = starts(unit, &zone, day);
    // Not so near to their ends that the clock would leave them.
    let inner = |all: &[u64]| Range {
        start: all[2],
        end: all[all.len() - 3],
    };
    let inner = inner(&starts);
    let mut model = Model {
        starts,
        capacity: 7,
        window: 0,
        count: 0,
    };
    let mut now = first_of(day, &zone).clamp(inner.start, inner.end);
    for step in steps {
        match *step {
            Step::Advance(span) => now = (now + span).min(inner.end),
            Step::Back(span) => now = (now - span).max(inner.start),
            Step::Boundary(window, offset) => {
                let nearby = model.window_at(now) as i64 + i64::from(window);
                let start =
                    model.starts[usize::try_from(nearby).unwrap().min(model.starts.len() - 1)];
                now = start.saturating_add_signed(offset.into());
                now = now.clamp(inner.start, inner.end);
            }
            Step::Take(cost) => {
                let decision = gate.at(now).check(&request(cost));
                let expected = model.decide(now, cost, true);
                prop_assert_eq!(fields(&decision), expected, "{:?} at {}", step, now);
            }
            Step::Peek(cost) => {
                let decision = gate.at(now).peek(&request(cost));
                let expected = model.decide(now, cost, false);
                prop_assert_eq!(fields(&decision), expected, "{:?} at {}", step, now);
            }
            Step::Refund(units) => {
                let left = gate.at(now).refund(&[], units);
                let (window, count) = model.settle(now);
                let count = count.saturating_sub(units);
                (model.window, model.count) = match count {
                    // Nothing is left to store.
                    0 => (0, 0),
                    _ => (window, count),
                };
                prop_assert_eq!(left, 7 - count, "{:?} at {}", step, now);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn calendar_bands_agree_with_the_model(
        place in 0..PLACES.len(), unit in 0..UNITS.len(), steps in steps()
    ) {
        run(place, unit, &steps)?;
    }
}

/// Never over: whatever the clock does forwards, no window admits more than its capacity.
#[test]
fn each_window_admits_its_capacity() {
    let zone = TimeZone::get("America/New_York").unwrap();
    let day: Date = "2026-11-01".parse().unwrap();
    for unit in UNITS {
        let gate = Gate::new(&global(&format!(
            "algorithm: fixed_window, \
             bands: [{{ capacity: 5, calendar: {unit}, time_zone: America/New_York }}]"
        )));
        let starts = starts(unit, &zone, day);
        for window in starts.windows(2).take(20) {
            let times = (0..9).map(|part| window[0] + (window[1] - window[0]) * part / 9);
            let passed = times.chain([window[1] - 1]).filter(|now| {
                gate.clock.set(instant(*now));
                gate.take(1).allowed()
            });
            assert_eq!(passed.count(), 5, "{unit} {window:?}");
        }
    }
}

#[test]
fn another_calendar_is_another_counter() {
    let band = |calendar: &str| {
        global(&format!(
            "algorithm: fixed_window, bands: [{{ capacity: 1, {calendar} }}]"
        ))
    };
    let gate = Gate::new(&band("calendar: day"));
    for other in [
        "calendar: day, time_zone: Asia/Seoul",
        "calendar: hour",
        "window: 1d",
        "calendar: month",
    ] {
        assert!(gate.take(1).allowed());
        assert!(!gate.take(1).allowed());
        gate.replace(&band(other));
    }
    assert!(gate.take(1).allowed());
    gate.replace(&band("calendar: day"));
    assert!(!gate.take(1).allowed(), "the first counter is still there");
}

/// A reservation that is cancelled returns the units of the window that it was charged to,
/// and of no other.
#[test]
fn a_cancelled_reservation_returns_to_its_window() {
    for (later, left) in [(0, 9), (2 * DAY, 10)] {
        let gate = Gate::new(&set_of(
            "{ id: r, scope: global, algorithm: fixed_window, \
               bands: [{ capacity: 10, calendar: day, time_zone: America/New_York }] },
             { id: w, scope: global, on_exceed: wait, max_wait: 30d, bands: [1/7d] }",
        ));
        assert!(gate.take(1).allowed());
        let reserved = gate.take(1);
        assert!(reserved.allowed() && reserved.delay_micros().get() > 0);
        assert_eq!(gate.left(&[]), [8]);
        gate.at(START + later);
        let charge = reserved.charge(&request(1)).unwrap();
        ready(gate.limiter.cancel(charge)).unwrap();
        assert_eq!(gate.left(&[]), [left]);
    }
}
