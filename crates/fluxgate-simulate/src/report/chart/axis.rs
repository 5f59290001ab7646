//! The two axes of a chart.

use std::ops::AddAssign;

use crate::report::humanize;
use crate::report::timeline::{ColumnWidth, Timeline};
use crate::report::traffic::Traffic;
use crate::time::{DAY, HOUR, MILLISECOND, MINUTE, SECOND};

/// The time that a chart covers, in columns.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct TimeAxis {
    pub(in crate::report) width: ColumnWidth,
    /// The number of the first column, counted from 1970.
    pub(super) first: u64,
    pub(super) columns: u64,
    style: TimeStyle,
}

/// How instants are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeStyle {
    /// As the time since 1970, for a synthetic stream that starts at zero.
    Elapsed,
    /// As the time of day.
    Day,
    /// As date and time.
    Dated,
}

impl TimeAxis {
    /// Creates an axis that covers all arrivals. It extends to the last release, but
    /// by no more than half, so that the arrivals remain visible.
    pub(in crate::report) fn of(traffic: &Traffic, others: &[&Traffic]) -> Self {
        let arrivals = &traffic.arrivals;
        let width = arrivals.width();
        let first = arrivals.first();
        let all = others.iter().chain([&traffic]);
        let releases = all.map(|traffic| {
            let releases = &traffic.releases;
            (releases.end() * releases.width().micros()).div_ceil(width.micros())
        });
        let limit = first + (arrivals.end() - first) * 3 / 2;
        let end = releases.max().unwrap_or(0).min(limit);
        Self::new(width, first, end.max(arrivals.end()) - first)
    }

    /// Creates an axis of these columns. The first has this number, counted from 1970.
    pub(in crate::report) fn new(width: ColumnWidth, first: u64, columns: u64) -> Self {
        let from = first * width.micros();
        let to = (first + columns) * width.micros();
        let style = match (from / DAY, (to - 1) / DAY) {
            (0, 0) => TimeStyle::Elapsed,
            (a, b) if a == b => TimeStyle::Day,
            _ => TimeStyle::Dated,
        };
        Self {
            width,
            first,
            columns,
            style,
        }
    }

    pub(super) fn start(&self) -> u64 {
        self.first * self.width.micros()
    }

    pub(super) fn end(&self) -> u64 {
        (self.first + self.columns) * self.width.micros()
    }

    /// Returns the counts in each column of this axis, without those outside it.
    pub(in crate::report) fn fit<T>(&self, timeline: &Timeline<T>) -> Vec<T>
    where
        T: Copy + Default + AddAssign,
    {
        let mut timeline = timeline.clone();
        timeline.widen(self.width);
        let mut fitted = vec![T::default(); self.columns as usize];
        for (number, counts) in timeline.columns() {
            let column = number.checked_sub(self.first);
            if let Some(fitted) = column.and_then(|column| fitted.get_mut(column as usize)) {
                *fitted += counts;
            }
        }
        fitted
    }

    /// Returns the instants to mark on an axis of this length, with their labels.
    pub(super) fn ticks(&self, width: u64) -> Vec<(u64, String)> {
        // The width of a label on a phone, where letters are large.
        let span = self.end() - self.start();
        let room = match self.style {
            TimeStyle::Elapsed if span > MINUTE => 60,
            TimeStyle::Elapsed | TimeStyle::Day => 110,
            TimeStyle::Dated => 150,
        };
        let most = (width / room).max(2);
        let step = tick_step(span, most);
        let first = self.start().div_ceil(step) * step;
        let ticks = (first..=self.end()).step_by(step as usize);
        ticks.map(|at| (at, self.label(at, step))).collect()
    }

    fn label(&self, at: u64, step: u64) -> String {
        match self.style {
            TimeStyle::Elapsed => humanize::elapsed(at, step),
            TimeStyle::Day => humanize::time_of_day(at, step),
            TimeStyle::Dated if step.is_multiple_of(DAY) => humanize::date(at),
            TimeStyle::Dated => {
                let date = humanize::date(at);
                let time = humanize::time_of_day(at, step);
                format!("{} {time}", date.get(5..).unwrap_or(&date))
            }
        }
    }

    /// Returns the start of a column, in full.
    pub(in crate::report) fn column_start(&self, index: u64) -> String {
        let at = (self.first + index) * self.width.micros();
        let step = self.width.micros();
        match self.style {
            TimeStyle::Elapsed => humanize::elapsed(at, step),
            TimeStyle::Day | TimeStyle::Dated => {
                format!(
                    "{} {} UTC",
                    humanize::date(at),
                    humanize::time_of_day(at, step)
                )
            }
        }
    }
}

/// Returns a round step that divides the span into about `most` parts or fewer.
fn tick_step(span: u64, most: u64) -> u64 {
    let small = [1, 2, 5, 10, 20, 50, 100, 200, 500].map(|step| step * MILLISECOND);
    let seconds = [1, 2, 5, 10, 15, 30].map(|step| step * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|step| step * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|step| step * HOUR);
    let days = [1, 2, 7, 14, 28, 91, 182, 365].map(|step| step * DAY);
    let years = [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000].map(|step| step * 365 * DAY);
    small
        .into_iter()
        .chain(seconds)
        .chain(minutes)
        .chain(hours)
        .chain(days)
        .chain(years)
        .find(|step| span / step <= most)
        .unwrap_or(10_000 * 365 * DAY)
}

/// Returns the marks of the other axis, from 0 to a round number not below `most`.
pub(super) fn count_ticks(most: u64) -> Vec<u64> {
    const STEPS: u64 = 4;
    let mut unit = 1;
    let step = loop {
        let steps = [unit, 2 * unit, 5 * unit];
        if let Some(step) = steps.into_iter().find(|step| step * STEPS >= most) {
            break step;
        }
        unit *= 10;
    };
    (0..=most.div_ceil(step).max(1))
        .map(|count| count * step)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_marked_at_round_numbers() {
        assert_eq!(count_ticks(0), [0, 1]);
        assert_eq!(count_ticks(3), [0, 1, 2, 3]);
        assert_eq!(count_ticks(9), [0, 5, 10]);
        assert_eq!(count_ticks(10_000), [0, 5_000, 10_000]);
        assert_eq!(count_ticks(10_001).last(), Some(&15_000));
    }

    #[test]
    fn time_is_marked_at_round_steps() {
        assert_eq!(tick_step(60 * SECOND, 5), 15 * SECOND);
        assert_eq!(tick_step(DAY, 5), 6 * HOUR);
        assert_eq!(tick_step(u64::MAX / 2, 2), 10_000 * 365 * DAY);
    }
}
