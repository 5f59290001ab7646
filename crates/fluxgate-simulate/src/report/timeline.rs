//! Counts over time, in a bounded number of columns.

use std::collections::VecDeque;
use std::ops::AddAssign;

use fluxgate_core::Timestamp;

use crate::time::{DAY, HOUR, MILLISECOND, MINUTE, SECOND};

/// The most columns that a timeline has.
const MAX_COLUMNS: usize = 240;

/// The widths that a column may have: units, and how many of them. Each width
/// divides the next, so that columns can be merged without the requests in them.
const WIDTHS: [(u64, &[u64]); 5] = [
    (MILLISECOND, &[1, 5, 10, 50, 100, 500]),
    (SECOND, &[1, 5, 15, 30]),
    (MINUTE, &[1, 5, 15, 30]),
    (HOUR, &[1, 3, 6, 12]),
    (DAY, &[1, 7, 28, 84, 336, 1_008, 3_024, 9_072, 18_144]),
];

/// The width of a column, in microseconds; the narrowest by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ColumnWidth(u64);

impl ColumnWidth {
    pub(super) const fn micros(self) -> u64 {
        self.0
    }

    /// Returns all widths, the narrowest first.
    fn all() -> impl Iterator<Item = Self> {
        let widths = |(unit, counts): &(u64, &'static [u64])| {
            let unit = *unit;
            counts.iter().map(move |count| Self(count * unit))
        };
        WIDTHS.iter().flat_map(widths)
    }

    /// Returns the widest one of at most `micros` microseconds, or else the narrowest.
    pub(super) fn at_most(micros: u64) -> Self {
        let widths = Self::all().take_while(|width| width.0 <= micros);
        widths.last().unwrap_or_default()
    }

    /// Returns the next wider one, if there is one. A timeline of the widest columns
    /// holds every timestamp.
    fn wider(self) -> Option<Self> {
        Self::all().find(|width| *width > self)
    }
}

impl Default for ColumnWidth {
    fn default() -> Self {
        Self(MILLISECOND)
    }
}

/// Counts by time. How long a stream lasts is not known beforehand, so a timeline
/// starts with the narrowest columns and merges them when there are too many.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline<T> {
    pub(super) width: ColumnWidth,
    /// The number of the first column, counted from 1970.
    pub(super) first: u64,
    columns: VecDeque<T>,
}

impl<T: Copy + Default + AddAssign> Timeline<T> {
    /// Returns the column of an instant, which is added if it is missing.
    pub(super) fn at(&mut self, at: Timestamp) -> &mut T {
        let column = loop {
            let column = at.micros() / self.width.micros();
            if self.columns.is_empty() {
                self.first = column;
            }
            let low = self.first.min(column);
            let high = self.end().max(column + 1);
            match self.width.wider() {
                Some(wider) if high - low > MAX_COLUMNS as u64 => self.widen(wider),
                _ => break column,
            }
        };
        while column < self.first {
            self.columns.push_front(T::default());
            self.first -= 1;
        }
        while column >= self.end() {
            self.columns.push_back(T::default());
        }
        let index = (column - self.first) as usize;
        &mut self.columns[index]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the number of the column after the last.
    pub(super) fn end(&self) -> u64 {
        self.first + self.columns.len() as u64
    }

    /// Returns the columns with their numbers.
    pub(super) fn columns(&self) -> impl Iterator<Item = (u64, T)> {
        (self.first..).zip(self.columns.iter().copied())
    }

    /// Merges columns until they have this width.
    pub(super) fn widen(&mut self, width: ColumnWidth) {
        if width <= self.width {
            return;
        }
        let merged = width.micros() / self.width.micros();
        let mut columns = VecDeque::new();
        for (number, counts) in self.columns() {
            let index = (number / merged - self.first / merged) as usize;
            if index == columns.len() {
                columns.push_back(T::default());
            }
            columns[index] += counts;
        }
        self.first /= merged;
        self.width = width;
        self.columns = columns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timeline_of(times: &[u64]) -> Timeline<u64> {
        let mut timeline = Timeline::default();
        for micros in times {
            *timeline.at(Timestamp::saturating_from_micros(*micros)) += 1;
            assert!(timeline.columns.len() <= MAX_COLUMNS);
        }
        timeline
    }

    fn counts(timeline: &Timeline<u64>) -> Vec<u64> {
        timeline.columns().map(|(_, count)| count).collect()
    }

    #[test]
    fn each_width_divides_the_next_and_the_widest_holds_all_time() {
        let widths: Vec<_> = ColumnWidth::all().map(ColumnWidth::micros).collect();
        for pair in widths.windows(2) {
            assert!(
                pair[1] > pair[0] && pair[1].is_multiple_of(pair[0]),
                "{pair:?}"
            );
        }
        assert_eq!(widths[0], ColumnWidth::default().micros());
        let most = widths[widths.len() - 1] * MAX_COLUMNS as u64;
        assert!(most > Timestamp::MAX.micros());
    }

    #[test]
    fn columns_are_merged_only_when_there_are_too_many() {
        let fits = timeline_of(&[0, 999, 1_000, 239_999]);
        assert_eq!((fits.width.micros(), fits.end()), (1_000, 240));
        let merged = timeline_of(&[0, 999, 1_000, 239_999, 240_000]);
        assert_eq!((merged.width.micros(), merged.end()), (5_000, 49));
        assert_eq!(counts(&merged)[0], 3);
        assert_eq!(counts(&merged)[47..], [1, 1]);
    }

    #[test]
    fn a_timeline_may_start_anywhere_and_grow_both_ways() {
        let timeline = timeline_of(&[7_003_000, 7_001_500, 7_004_000]);
        assert_eq!(timeline.first, 7_001);
        assert_eq!(counts(&timeline), [1, 0, 1, 1]);
        let wide = timeline_of(&[Timestamp::MAX.micros(), 0]);
        assert_eq!(counts(&wide).iter().sum::<u64>(), 2);
    }

    #[test]
    fn merging_may_start_in_the_middle_of_a_wider_column() {
        let mut timeline = timeline_of(&[4_000, 5_000, 9_000, 10_000]);
        timeline.widen(timeline.width.wider().unwrap());
        assert_eq!((timeline.first, counts(&timeline)), (0, vec![1, 2, 1]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn columns_stay_few_and_no_count_is_lost_or_moved(
            start in 0..Timestamp::MAX.micros(),
            steps in prop::collection::vec((0..60_u32, any::<u64>(), any::<bool>()), 1..200),
        ) {
            let (mut at, mut times) = (start, Vec::new());
            for (bits, step, back) in steps {
                let step = step % (1 << bits);
                at = if back { at.saturating_sub(step) } else { at.saturating_add(step) };
                at = at.min(Timestamp::MAX.micros());
                times.push(at);
            }
            let timeline = timeline_of(&times);
            let width = timeline.width.micros();
            for (number, count) in timeline.columns() {
                let there = times.iter().filter(|at| **at / width == number).count();
                prop_assert_eq!(count, there as u64);
            }
            let sum = counts(&timeline).iter().sum::<u64>();
            prop_assert_eq!(sum, times.len() as u64);
        }
    }
}
