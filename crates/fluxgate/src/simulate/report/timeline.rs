//! Counts over time, in a bounded number of columns.

use std::collections::VecDeque;

use fluxgate_core::Timestamp;

use super::width::Width;

/// The most columns that a timeline has.
pub(super) const MOST_COLUMNS: usize = 240;

/// What is counted in a column.
pub(super) trait Tally: Copy + Default {
    fn add(&mut self, other: Self);
}

impl Tally for u64 {
    fn add(&mut self, other: Self) {
        *self += other;
    }
}

/// Counts by time. Nobody knows beforehand how long a stream lasts: it begins
/// with the finest columns, and merges them when there are too many.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline<T> {
    width: Width,
    /// The number of the first column, counted from 1970.
    first: u64,
    columns: VecDeque<T>,
}

impl<T: Tally> Timeline<T> {
    /// The column of an instant; there is one afterwards.
    pub(super) fn at(&mut self, at: Timestamp) -> &mut T {
        let column = loop {
            let column = at.micros() / self.width.micros();
            if self.columns.is_empty() {
                self.first = column;
            }
            let low = self.first.min(column);
            let high = self.end().max(column + 1);
            match self.width.wider() {
                Some(wider) if high - low > MOST_COLUMNS as u64 => self.widen(wider),
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

    pub(super) fn width(&self) -> Width {
        self.width
    }

    /// The number of the first column, counted from 1970.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number of the column after the last.
    pub(super) fn end(&self) -> u64 {
        self.first + self.columns.len() as u64
    }

    /// The columns with their numbers.
    pub(super) fn columns(&self) -> impl Iterator<Item = (u64, T)> {
        (self.first..).zip(self.columns.iter().copied())
    }

    /// Merges columns until they are as wide as this.
    pub(super) fn widen(&mut self, width: Width) {
        if width <= self.width {
            return;
        }
        let merged = width.micros() / self.width.micros();
        let mut columns = VecDeque::new();
        for (number, tally) in self.columns() {
            let index = (number / merged - self.first / merged) as usize;
            if index == columns.len() {
                columns.push_back(T::default());
            }
            columns[index].add(tally);
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

    fn noted(times: &[u64]) -> Timeline<u64> {
        let mut timeline = Timeline::default();
        for micros in times {
            *timeline.at(Timestamp::saturating_from_micros(*micros)) += 1;
            assert!(timeline.columns.len() <= MOST_COLUMNS);
        }
        timeline
    }

    fn counts(timeline: &Timeline<u64>) -> Vec<u64> {
        timeline.columns().map(|(_, count)| count).collect()
    }

    #[test]
    fn columns_are_merged_only_when_there_are_too_many() {
        let fits = noted(&[0, 999, 1_000, 239_999]);
        assert_eq!((fits.width().micros(), fits.end()), (1_000, 240));
        let merged = noted(&[0, 999, 1_000, 239_999, 240_000]);
        assert_eq!((merged.width().micros(), merged.end()), (5_000, 49));
        assert_eq!(counts(&merged)[0], 3);
        assert_eq!(counts(&merged)[47..], [1, 1]);
    }

    #[test]
    fn a_timeline_may_begin_anywhere_and_grow_to_both_sides() {
        let timeline = noted(&[7_003_000, 7_001_500, 7_004_000]);
        assert_eq!(timeline.first(), 7_001);
        assert_eq!(counts(&timeline), [1, 0, 1, 1]);
        let wide = noted(&[Timestamp::MAX.micros(), 0]);
        assert_eq!(counts(&wide).iter().sum::<u64>(), 2);
    }

    #[test]
    fn merging_begins_in_the_middle_of_a_wider_column() {
        let mut timeline = noted(&[4_000, 5_000, 9_000, 10_000]);
        timeline.widen(timeline.width().wider().unwrap());
        assert_eq!((timeline.first(), counts(&timeline)), (0, vec![1, 2, 1]));
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
            let timeline = noted(&times);
            let width = timeline.width().micros();
            for (number, count) in timeline.columns() {
                let there = times.iter().filter(|at| **at / width == number).count();
                prop_assert_eq!(count, there as u64);
            }
            let sum = counts(&timeline).iter().sum::<u64>();
            prop_assert_eq!(sum, times.len() as u64);
        }
    }
}
