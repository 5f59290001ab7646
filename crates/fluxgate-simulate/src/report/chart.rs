//! A chart over time, as SVG.

use std::fmt;
use std::ops::AddAssign;

use super::html::Escaped;
use super::humanize;
use super::timeline::{ColumnWidth, Timeline};
use super::traffic::Traffic;
use crate::time::{DAY, HOUR, MILLISECOND, MINUTE, SECOND};

/// The colours of charts, in light and dark.
pub(super) const STYLE: &str = include_str!("chart.css");

/// The size of a chart.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChartSize {
    Wide,
    Small,
}

impl ChartSize {
    /// Returns width and height in units of the chart.
    const fn extent(self) -> (u64, u64) {
        match self {
            Self::Wide => (720, 270),
            Self::Small => (480, 210),
        }
    }
}

/// Between two entries of a legend.
const GAP: &str = "   ";
/// The widest bar is this fraction of the chart, however few columns there are.
const WIDEST_BAR: u64 = 24;
const LEFT: u64 = 50;
const RIGHT: u64 = 12;
const TOP: u64 = 58;
const BOTTOM: u64 = 30;

/// Stacked bars, and lines.
pub(super) struct Chart<'a> {
    pub(super) id: &'a str,
    /// A description for screen readers.
    pub(super) label: &'a str,
    pub(super) size: ChartSize,
    pub(super) axis: &'a TimeAxis,
    pub(super) bars: Vec<Series>,
    pub(super) lines: Vec<Series>,
    /// The highest mark is not below this, so that several charts can share a scale.
    pub(super) min_scale: u64,
}

impl Chart<'_> {
    /// Returns the highest count of any column.
    pub(super) fn highest(&self) -> u64 {
        let columns = 0..self.axis.columns as usize;
        let stacks = columns.map(|index| self.bars.iter().map(|bars| bars.value(index)).sum());
        let lines = self.lines.iter().flat_map(|line| {
            let requests = |value: &u64| value.div_ceil(line.parts);
            line.values.iter().map(requests)
        });
        stacks.chain(lines).max().unwrap_or(0).max(self.min_scale)
    }

    fn x(&self, column: u64) -> Tenths {
        let plot = (self.size.extent().0 - LEFT - RIGHT) * 10;
        Tenths(LEFT * 10 + column * plot / self.axis.columns)
    }

    fn axes(&self, f: &mut fmt::Formatter<'_>, plot: &Plot) -> fmt::Result {
        let (width, height) = self.size.extent();
        for mark in &plot.marks {
            let y = plot.y(*mark, 1);
            let (end, text) = (width - RIGHT, humanize::abbreviated(*mark));
            write!(
                f,
                "<path class=\"grid\" d=\"M{LEFT} {y}H{end}\"/>\
                 <text x=\"{}\" y=\"{y}\" dy=\".35em\" text-anchor=\"end\">{text}</text>",
                LEFT - 6
            )?;
        }
        let start = self.axis.start();
        let span = u128::from(self.axis.end() - start);
        let across = u128::from((width - LEFT - RIGHT) * 10);
        for (at, text) in self.axis.ticks(width - LEFT - RIGHT) {
            let along = u128::from(at - start) * across / span;
            let x = Tenths(LEFT * 10 + along as u64);
            // Labels at either end stay inside the chart.
            let anchor = match x.0 {
                left if left < (LEFT + 40) * 10 => "start",
                right if right + 400 > width * 10 => "end",
                _ => "middle",
            };
            let bottom = height - BOTTOM + 5;
            write!(
                f,
                "<path class=\"grid\" d=\"M{x} {TOP}V{bottom}\"/>\
                 <text x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{text}</text>",
                height - 7
            )?;
        }
        Ok(())
    }

    /// Writes the bars on one line and the lines on the next, which fits a phone,
    /// where letters are large.
    fn legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "<text class=\"key\" x=\"{LEFT}\" y=\"24\">{}</text>",
            keys(&self.bars, "■")
        )?;
        let column = humanize::duration(self.axis.width.micros());
        let lines = match keys(&self.lines, "━") {
            lines if lines.is_empty() => lines,
            lines => format!("{GAP}<tspan class=\"key\">{lines}</tspan>"),
        };
        writeln!(
            f,
            "<text x=\"{LEFT}\" y=\"48\">requests per {column}{lines}</text>"
        )
    }

    fn draw_bars(&self, f: &mut fmt::Formatter<'_>, plot: &Plot) -> fmt::Result {
        let mut below = vec![0; self.axis.columns as usize];
        for series in self.bars.iter().filter(|series| !series.is_empty()) {
            write!(f, "<path class=\"bars {}\" d=\"", series.kind.class())?;
            for (index, below) in below.iter_mut().enumerate() {
                let value = series.value(index);
                if value == 0 {
                    continue;
                }
                let (bottom, top) = (plot.y(*below, 1), plot.y(*below + value, 1));
                *below += value;
                let (left, right) = self.bar(index as u64);
                write!(f, "M{left} {bottom}V{top}H{right}V{bottom}z")?;
            }
            writeln!(f, "\"/>")?;
        }
        Ok(())
    }

    /// Returns the two sides of a bar. There is a gap between wide ones.
    fn bar(&self, index: u64) -> (Tenths, Tenths) {
        let (left, right) = (self.x(index), self.x(index + 1));
        let gap = if right.0 - left.0 >= 50 { 10 } else { 0 };
        let widest = (self.size.extent().0 - LEFT - RIGHT) * 10 / WIDEST_BAR;
        (left, Tenths((right.0 - gap).min(left.0 + widest)))
    }

    fn draw_lines(&self, f: &mut fmt::Formatter<'_>, plot: &Plot) -> fmt::Result {
        for series in self.lines.iter().filter(|series| !series.is_empty()) {
            let class = series.kind.class();
            write!(f, "<path class=\"line {class}\" d=\"M{} ", self.x(0))?;
            let mut previous = None;
            for (index, value) in series.values.iter().enumerate() {
                if previous == Some(*value) {
                    continue;
                }
                let y = plot.y(*value, series.parts);
                match previous {
                    None => write!(f, "{y}")?,
                    Some(_) => write!(f, "H{}V{y}", self.x(index as u64))?,
                }
                previous = Some(*value);
            }
            writeln!(f, "H{}\"/>", self.x(self.axis.columns))?;
        }
        Ok(())
    }

    /// Writes the counts of each column, which a pointer shows.
    fn tooltips(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let height = self.size.extent().1 - TOP - BOTTOM;
        for index in 0..self.axis.columns {
            let all = self.bars.iter().chain(&self.lines);
            let counts: Vec<_> = all
                .filter(|series| series.parts == 1)
                .map(|series| (series.kind, series.value(index as usize)))
                .filter(|(_, value)| *value > 0)
                .collect();
            if counts.is_empty() {
                continue;
            }
            let (left, right) = (self.x(index), self.x(index + 1));
            let width = Tenths(right.0 - left.0);
            write!(
                f,
                "<rect class=\"hit\" x=\"{left}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\"><title>{}",
                self.axis.column_start(index)
            )?;
            for (kind, value) in counts {
                write!(f, "\n{} {}", kind.name(), humanize::grouped(value))?;
            }
            writeln!(f, "</title></rect>")?;
        }
        Ok(())
    }
}

impl fmt::Display for Chart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size.extent();
        let plot = Plot {
            bottom: (height - BOTTOM) * 10,
            height: (height - BOTTOM - TOP) * 10,
            marks: count_ticks(self.highest()),
        };
        let class = match self.size {
            ChartSize::Wide => "chart wide",
            ChartSize::Small => "chart",
        };
        let (id, label) = (self.id, Escaped(self.label));
        writeln!(
            f,
            "<svg id=\"{id}\" class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">"
        )?;
        self.legend(f)?;
        self.axes(f, &plot)?;
        self.draw_bars(f, &plot)?;
        self.draw_lines(f, &plot)?;
        self.tooltips(f)?;
        writeln!(f, "</svg>")
    }
}

/// Returns the legend of the series, without those that are empty.
fn keys(series: &[Series], symbol: &str) -> String {
    let shown = series.iter().filter(|series| !series.is_empty());
    let keys = shown.map(|series| {
        let (class, name) = (series.kind.class(), series.kind.name());
        format!("<tspan class=\"{class}\">{symbol}</tspan> {name}")
    });
    keys.collect::<Vec<_>>().join(GAP)
}

/// Places counts on the vertical axis.
struct Plot {
    /// In tenths of a unit, like the height.
    bottom: u64,
    height: u64,
    marks: Vec<u64>,
}

impl Plot {
    fn y(&self, value: u64, parts: u64) -> Tenths {
        let most = self.marks.last().copied().unwrap_or(1).max(1);
        let scale = u128::from(most) * u128::from(parts);
        let up = u128::from(value) * u128::from(self.height) / scale;
        Tenths(self.bottom.saturating_sub(up as u64))
    }
}

/// Tenths of a unit, written as a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tenths(u64);

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}", self.0 / 10),
            tenth => write!(f, "{}.{tenth}", self.0 / 10),
        }
    }
}

/// The requests that a series counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesKind {
    NoRule,
    AtOnce,
    Delayed,
    Denied,
    ShadowDenied,
    Released,
    NewlyDenied,
    NewlyAdmitted,
}

impl SeriesKind {
    /// Returns the name in legends and tooltips.
    const fn name(self) -> &'static str {
        match self {
            Self::NoRule => "no rule",
            Self::AtOnce => "admitted",
            Self::Delayed => "delayed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow-denied",
            Self::Released => "released",
            Self::NewlyDenied => "newly denied",
            Self::NewlyAdmitted => "newly admitted",
        }
    }

    /// Returns the class in the style sheet.
    const fn class(self) -> &'static str {
        match self {
            Self::NoRule => "no-rule",
            Self::AtOnce => "at-once",
            Self::Delayed => "delayed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow",
            Self::Released => "released",
            Self::NewlyDenied => "denied",
            Self::NewlyAdmitted => "at-once",
        }
    }
}

/// Counts in each column of the axis.
pub(super) struct Series {
    kind: SeriesKind,
    values: Vec<u64>,
    /// How many units of a value make one request.
    parts: u64,
}

impl Series {
    pub(super) fn new(kind: SeriesKind, values: impl Iterator<Item = u64>) -> Self {
        Self {
            kind,
            values: values.collect(),
            parts: 1,
        }
    }

    /// Creates a series from a timeline. Columns wider than those of the axis are
    /// spread evenly.
    fn spread(kind: SeriesKind, timeline: &Timeline<u64>, axis: &TimeAxis) -> Self {
        const PARTS: u64 = 100;
        if timeline.width <= axis.width {
            return Self::new(kind, axis.fit(timeline).into_iter());
        }
        let wide = timeline.width.micros() / axis.width.micros();
        let columns: Vec<_> = timeline.columns().collect();
        let values = (axis.first..axis.first + axis.columns).map(|number| {
            let column = columns.iter().find(|(wider, _)| *wider == number / wide);
            column.map_or(0, |(_, count)| count * PARTS / wide)
        });
        Self {
            kind,
            values: values.collect(),
            parts: PARTS,
        }
    }

    fn is_empty(&self) -> bool {
        self.values.iter().all(|value| *value == 0)
    }

    fn value(&self, index: usize) -> u64 {
        self.values.get(index).copied().unwrap_or(0)
    }
}

/// Returns the bars and the lines that show traffic.
pub(super) fn traffic_series(traffic: &Traffic, axis: &TimeAxis) -> (Vec<Series>, Vec<Series>) {
    let arrivals = axis.fit(&traffic.arrivals);
    let columns = || arrivals.iter();
    let bars = vec![
        Series::new(SeriesKind::NoRule, columns().map(|counts| counts.no_rule)),
        Series::new(SeriesKind::AtOnce, columns().map(|counts| counts.at_once)),
        Series::new(SeriesKind::Delayed, columns().map(|counts| counts.delayed)),
        Series::new(SeriesKind::Denied, columns().map(|counts| counts.denied)),
    ];
    let shadow_denied = columns().map(|counts| counts.shadow_denied);
    let mut lines = vec![Series::new(SeriesKind::ShadowDenied, shadow_denied)];
    if traffic.total.delayed > 0 {
        lines.push(Series::spread(
            SeriesKind::Released,
            &traffic.releases,
            axis,
        ));
    }
    (bars, lines)
}

/// The time that a chart covers, in columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeAxis {
    pub(super) width: ColumnWidth,
    /// The number of the first column, counted from 1970.
    first: u64,
    columns: u64,
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
    pub(super) fn of(traffic: &Traffic, others: &[&Traffic]) -> Self {
        let arrivals = &traffic.arrivals;
        let width = arrivals.width;
        let first = arrivals.first;
        let all = others.iter().chain([&traffic]);
        let releases = all.map(|traffic| {
            let releases = &traffic.releases;
            (releases.end() * releases.width.micros()).div_ceil(width.micros())
        });
        let limit = first + (arrivals.end() - first) * 3 / 2;
        let end = releases.max().unwrap_or(0).min(limit);
        Self::new(width, first, end.max(arrivals.end()) - first)
    }

    /// Creates an axis of these columns. The first has this number, counted from 1970.
    pub(super) fn new(width: ColumnWidth, first: u64, columns: u64) -> Self {
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

    fn start(&self) -> u64 {
        self.first * self.width.micros()
    }

    fn end(&self) -> u64 {
        (self.first + self.columns) * self.width.micros()
    }

    /// Returns the counts in each column of this axis, without those outside it.
    pub(super) fn fit<T>(&self, timeline: &Timeline<T>) -> Vec<T>
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
    fn ticks(&self, width: u64) -> Vec<(u64, String)> {
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
    pub(super) fn column_start(&self, index: u64) -> String {
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
fn count_ticks(most: u64) -> Vec<u64> {
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
