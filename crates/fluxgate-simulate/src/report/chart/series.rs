//! The counts that a chart draws.

use super::axis::TimeAxis;
use crate::report::timeline::Timeline;
use crate::report::traffic::Traffic;

/// The requests that a series counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum SeriesKind {
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
    pub(super) const fn name(self) -> &'static str {
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
    pub(super) const fn class(self) -> &'static str {
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
pub(in crate::report) struct Series {
    pub(super) kind: SeriesKind,
    pub(super) values: Vec<u64>,
    /// How many units of a value make one request.
    pub(super) parts: u64,
}

impl Series {
    pub(in crate::report) fn new(kind: SeriesKind, values: impl Iterator<Item = u64>) -> Self {
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
        if timeline.width() <= axis.width {
            return Self::new(kind, axis.fit(timeline).into_iter());
        }
        let wide = timeline.width().micros() / axis.width.micros();
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

    pub(super) fn is_empty(&self) -> bool {
        self.values.iter().all(|value| *value == 0)
    }

    pub(super) fn value(&self, index: usize) -> u64 {
        self.values.get(index).copied().unwrap_or(0)
    }
}

/// Returns the bars and the lines that show traffic.
pub(in crate::report) fn traffic_series(
    traffic: &Traffic,
    axis: &TimeAxis,
) -> (Vec<Series>, Vec<Series>) {
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
