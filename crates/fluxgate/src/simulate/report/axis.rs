//! The two axes of a chart.

use super::course::Course;
use super::timeline::{Tally, Timeline};
use super::width::{DAY, HOUR, MILLISECOND, MINUTE, SECOND, Width};
use super::words;

/// Fewer columns would be bars as broad as the page.
const LEAST_COLUMNS: u64 = 24;

/// The time that a chart shows, in columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeAxis {
    pub(super) width: Width,
    /// The number of the first column, counted from 1970.
    pub(super) first: u64,
    pub(super) columns: u64,
    style: Style,
}

/// How instants are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// By the time since 1970 began: a made-up stream that starts at zero.
    Elapsed,
    /// By the time of day.
    Day,
    /// By date and time.
    Dated,
}

impl TimeAxis {
    /// An axis on which all requests fall. If there is room, it goes on until
    /// the last of them has gone on too, but not so long that nobody could see
    /// the requests.
    pub(super) fn of(course: &Course, others: &[&Course]) -> Self {
        let fates = &course.fates;
        let width = fates.width();
        let requests = fates.end() - fates.first();
        let all = others.iter().chain([&course]);
        let gone = all.map(|course| {
            let let_go = &course.let_go;
            (let_go.end() * let_go.width().micros()).div_ceil(width.micros())
        });
        let end = gone
            .max()
            .unwrap_or(0)
            .min(fates.first() + requests * 3 / 2);
        let columns = end.max(fates.end()) - fates.first();
        let columns = columns.max(LEAST_COLUMNS);
        let from = fates.first() * width.micros();
        let to = (fates.first() + columns) * width.micros();
        let style = match (from / DAY, (to - 1) / DAY) {
            (0, 0) => Style::Elapsed,
            (a, b) if a == b => Style::Day,
            _ => Style::Dated,
        };
        Self {
            width,
            first: fates.first(),
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

    /// A timeline, column by column of this axis. What is outside is left out.
    pub(super) fn fit<T: Tally>(&self, timeline: &Timeline<T>) -> Vec<T> {
        let mut timeline = timeline.clone();
        timeline.widen(self.width);
        let mut fitted = vec![T::default(); self.columns as usize];
        for (number, tally) in timeline.columns() {
            let column = number.checked_sub(self.first);
            if let Some(fitted) = column.and_then(|column| fitted.get_mut(column as usize)) {
                fitted.add(tally);
            }
        }
        fitted
    }

    /// Instants to mark on an axis that is so long, with what to write there.
    pub(super) fn ticks(&self, width: u64) -> Vec<(u64, String)> {
        // How much room a label takes on a phone, where letters are large.
        let span = self.end() - self.start();
        let room = match self.style {
            Style::Elapsed if span > MINUTE => 60,
            Style::Elapsed | Style::Day => 110,
            Style::Dated => 150,
        };
        let most = (width / room).max(2);
        let step = tick_step(span, most);
        let first = self.start().div_ceil(step) * step;
        let ticks = (first..=self.end()).step_by(step as usize);
        ticks.map(|at| (at, self.label(at, step))).collect()
    }

    fn label(&self, at: u64, step: u64) -> String {
        match self.style {
            Style::Elapsed => words::elapsed(at, step),
            Style::Day => words::time_of_day(at, step),
            Style::Dated if step.is_multiple_of(DAY) => words::date(at),
            Style::Dated => {
                let date = words::date(at);
                let time = words::time_of_day(at, step);
                format!("{} {time}", date.get(5..).unwrap_or(&date))
            }
        }
    }

    /// When a column begins, in full.
    pub(super) fn column(&self, index: u64) -> String {
        let at = (self.first + index) * self.width.micros();
        let step = self.width.micros();
        match self.style {
            Style::Elapsed => words::elapsed(at, step),
            Style::Day | Style::Dated => {
                format!("{} {} UTC", words::date(at), words::time_of_day(at, step))
            }
        }
    }
}

/// A step that people count in, such that at most about `most` fit.
fn tick_step(span: u64, most: u64) -> u64 {
    let small = [1, 2, 5, 10, 20, 50, 100, 200, 500].map(|step| step * MILLISECOND);
    let seconds = [1, 2, 5, 10, 15, 30].map(|step| step * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|step| step * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|step| step * HOUR);
    let days = [1, 2, 7, 14, 28, 91, 182, 365].map(|step| step * DAY);
    let years = [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000].map(|step| step * 365 * DAY);
    let steps = small.into_iter().chain(seconds).chain(minutes);
    let mut steps = steps.chain(hours).chain(days).chain(years);
    let found = steps.find(|step| span / step <= most);
    found.unwrap_or(10_000 * 365 * DAY)
}

/// The marks of the other axis, from 0 to a round number that is `most` or more.
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
    fn steps_are_those_that_people_count_in() {
        assert_eq!(tick_step(60 * SECOND, 5), 15 * SECOND);
        assert_eq!(tick_step(DAY, 5), 6 * HOUR);
        assert_eq!(tick_step(u64::MAX / 2, 2), 10_000 * 365 * DAY);
    }
}
