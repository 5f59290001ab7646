//! What a chart draws.

use super::axis::TimeAxis;
use super::timeline::Timeline;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NoRule,
    AtOnce,
    Delayed,
    Denied,
    ShadowDenied,
    LetGo,
}

impl Kind {
    /// What it is called.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoRule => "no rule",
            Self::AtOnce => "admitted",
            Self::Delayed => "delayed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow-denied",
            Self::LetGo => "let go",
        }
    }

    /// Its class in the style.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::NoRule => "no-rule",
            Self::AtOnce => "at-once",
            Self::Delayed => "delayed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow",
            Self::LetGo => "let-go",
        }
    }
}

/// Counts, column by column of the axis.
pub(super) struct Series {
    pub(super) kind: Kind,
    pub(super) values: Vec<u64>,
    /// How many parts of a value are one request.
    pub(super) parts: u64,
}

impl Series {
    pub(super) fn new(kind: Kind, values: impl Iterator<Item = u64>) -> Self {
        Self {
            kind,
            values: values.collect(),
            parts: 1,
        }
    }

    /// A timeline whose columns may be wider than those of the axis: then each is
    /// spread evenly.
    pub(super) fn spread(kind: Kind, timeline: &Timeline<u64>, axis: &TimeAxis) -> Self {
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
