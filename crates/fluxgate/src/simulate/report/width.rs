//! How wide the columns of a chart are.

/// The widths that a column may have, in microseconds. Each divides the next, so
/// that columns can be merged without looking at a request again.
const WIDTHS: [u64; 27] = [
    MILLISECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    5 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    7 * DAY,
    28 * DAY,
    84 * DAY,
    336 * DAY,
    1_008 * DAY,
    3_024 * DAY,
    9_072 * DAY,
    18_144 * DAY,
];

pub(super) const MILLISECOND: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000 * MILLISECOND;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// One of the widths; the finest by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Width(usize);

impl Width {
    pub(super) const fn micros(self) -> u64 {
        WIDTHS[self.0]
    }

    /// The next wider one. Of the widest there is none: a few of them hold all
    /// time there is.
    pub(super) fn wider(self) -> Option<Self> {
        (self.0 + 1 < WIDTHS.len()).then_some(Self(self.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::report::timeline::MOST_COLUMNS;
    use fluxgate_core::Timestamp;

    #[test]
    fn each_width_divides_the_next_and_the_widest_holds_all_time() {
        for pair in WIDTHS.windows(2) {
            assert!(
                pair[1] > pair[0] && pair[1].is_multiple_of(pair[0]),
                "{pair:?}"
            );
        }
        let most = WIDTHS[WIDTHS.len() - 1] * MOST_COLUMNS as u64;
        assert!(most > Timestamp::MAX.micros());
    }
}
