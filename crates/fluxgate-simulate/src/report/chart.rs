//! A chart over time, as SVG.

mod axis;
mod series;

use std::fmt;

use super::html::Escaped;
use super::humanize;
pub(super) use axis::TimeAxis;
use axis::count_ticks;
pub(super) use series::{Series, SeriesKind, traffic_series};

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
