//! Requests and their outcomes over time, and the stretch with the most refusals, in columns that
//! show single windows.

use std::cmp::Reverse;
use std::mem;
use std::ops::AddAssign;

use fluxgate_core::store::Micros;
use fluxgate_core::{ActiveRule, Decision, Outcome, RuleVerdict, Timestamp};

use super::timeline::{ColumnWidth, Timeline};

/// All requests, over time and in total.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    /// Every request at the time of its arrival.
    pub(super) arrivals: Timeline<OutcomeCounts>,
    /// Every admitted request at the time when its delay is over.
    pub(super) releases: Timeline<u64>,
    pub(super) total: OutcomeCounts,
    pub(super) longest_delay: Micros,
    /// The earliest and the latest arrival.
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
}

impl Traffic {
    pub(super) fn record(&mut self, at: Timestamp, decision: &Decision) {
        let counts = OutcomeCounts::of(decision);
        *self.arrivals.at(at) += counts;
        self.total += counts;
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = self.last.max(Some(at));
        if decision.allowed() {
            let delay = decision.delay_micros();
            self.longest_delay = self.longest_delay.max(delay);
            let later = at.micros().saturating_add(delay.get());
            *self.releases.at(Timestamp::saturating_from_micros(later)) += 1;
        }
    }
}

/// The window, in microseconds, that stands in for that of a rule without bands.
const WITHOUT_WINDOW: u64 = 60_000_000;

/// The requests that one rule matched, over time and in total. What it would have denied,
/// were it not a shadow rule for the identity, counts as denied, too.
#[derive(Clone, Debug)]
pub(super) struct RuleTraffic {
    pub(super) arrivals: Timeline<OutcomeCounts>,
    /// As fine as the shortest window.
    pub(super) detail: Detail,
    pub(super) total: OutcomeCounts,
}

impl RuleTraffic {
    pub(super) fn new(rule: &ActiveRule) -> Self {
        let bands = rule.bands().iter();
        let shortest = bands.map(|band| band.limit().window().get()).min();
        Self {
            arrivals: Timeline::default(),
            detail: Detail::of_window(shortest.unwrap_or(WITHOUT_WINDOW)),
            total: OutcomeCounts::default(),
        }
    }

    pub(super) fn record(&mut self, at: Timestamp, verdict: &RuleVerdict<'_>) {
        let delayed = verdict.delay > Micros::ZERO;
        let counts = OutcomeCounts {
            at_once: (!verdict.denied && !delayed).into(),
            delayed: (!verdict.denied && delayed).into(),
            denied: verdict.denied.into(),
            shadow_denied: (verdict.denied && verdict.is_shadow).into(),
            ..OutcomeCounts::default()
        };
        *self.arrivals.at(at) += counts;
        self.detail.record(at, counts);
        self.total += counts;
    }
}

/// Requests by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutcomeCounts {
    /// Admitted because no rule matched.
    pub(super) no_rule: u64,
    /// Admitted without a delay.
    pub(super) at_once: u64,
    /// Admitted after a delay.
    pub(super) delayed: u64,
    pub(super) denied: u64,
    /// Admitted, but a shadow rule would have denied them. They are also counted
    /// above.
    pub(super) shadow_denied: u64,
}

impl OutcomeCounts {
    pub(super) fn of(decision: &Decision) -> Self {
        let no_rule = decision.outcome() == Outcome::NoRule;
        let delayed = decision.allowed() && decision.delay_micros() > Micros::ZERO;
        Self {
            no_rule: no_rule.into(),
            at_once: (decision.allowed() && !no_rule && !delayed).into(),
            delayed: delayed.into(),
            denied: (!decision.allowed()).into(),
            shadow_denied: (decision.outcome() == Outcome::ShadowDenied).into(),
        }
    }

    pub(super) fn admitted(self) -> u64 {
        self.no_rule + self.at_once + self.delayed
    }

    pub(super) fn requests(self) -> u64 {
        self.admitted() + self.denied
    }
}

impl AddAssign for OutcomeCounts {
    fn add_assign(&mut self, other: Self) {
        self.no_rule += other.no_rule;
        self.at_once += other.at_once;
        self.delayed += other.delayed;
        self.denied += other.denied;
        self.shadow_denied += other.shadow_denied;
    }
}

/// The number of columns in a stretch.
const COLUMNS: u64 = 120;

/// The minimum number of columns in a window.
const COLUMNS_PER_WINDOW: u64 = 4;

/// The stretch in which a rule refused the most requests, in narrow columns.
///
/// Two grids divide time into stretches of equal length. The second grid is shifted by half
/// a stretch, so a burst that is shorter than that lies within a single stretch of one grid.
#[derive(Clone, Debug)]
pub(super) struct Detail {
    pub(super) width: ColumnWidth,
    grids: [Grid; 2],
}

/// One division of time into stretches. Keeps the current one and the best of those before.
#[derive(Clone, Debug, Default)]
struct Grid {
    current: Stretch,
    best: Stretch,
}

/// A stretch of at most [`COLUMNS`] columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    number: u64,
    /// The columns up to the last one with requests.
    columns: Vec<OutcomeCounts>,
    refused: u64,
    requests: u64,
}

impl Detail {
    /// Creates an empty detail whose columns are narrow enough for a window of this many
    /// microseconds.
    pub(super) fn of_window(window: u64) -> Self {
        Self {
            width: ColumnWidth::at_most(window / COLUMNS_PER_WINDOW),
            grids: Default::default(),
        }
    }

    pub(super) fn record(&mut self, at: Timestamp, counts: OutcomeCounts) {
        let column = at.micros() / self.width.micros();
        for (grid, shift) in self.grids.iter_mut().zip([0, COLUMNS / 2]) {
            let column = column + shift;
            grid.record(column / COLUMNS, (column % COLUMNS) as usize, counts);
        }
    }

    /// Returns the stretch with the most refusals, or without refusals the one with the most
    /// requests: the number of its first column with requests, and the columns from there.
    pub(super) fn best(&self) -> Option<(u64, &[OutcomeCounts])> {
        // On a tie, the earliest.
        let (best, shift) = self
            .grids
            .iter()
            .zip([0, COLUMNS / 2])
            .flat_map(|(grid, shift)| [(&grid.best, shift), (&grid.current, shift)])
            .filter(|(stretch, _)| stretch.requests > 0)
            .min_by_key(|(stretch, shift)| {
                let start = (stretch.number * COLUMNS).saturating_sub(*shift);
                (Reverse(stretch.score()), start)
            })?;
        let has_requests = |counts: &OutcomeCounts| counts.requests() > 0;
        let empty = best.columns.iter().position(has_requests)?;
        let first = best.number * COLUMNS + empty as u64;
        Some((first.checked_sub(shift)?, &best.columns[empty..]))
    }
}

impl Grid {
    fn record(&mut self, number: u64, index: usize, counts: OutcomeCounts) {
        // Requests may be out of order.
        if self.best.requests > 0 && self.best.number == number {
            self.best.record(index, counts);
            return;
        }
        if self.current.requests > 0 && self.current.number != number {
            let ended = mem::take(&mut self.current);
            if ended.score() > self.best.score() {
                self.best = ended;
            }
        }
        self.current.number = number;
        self.current.record(index, counts);
    }
}

impl Stretch {
    fn score(&self) -> (u64, u64) {
        (self.refused, self.requests)
    }

    fn record(&mut self, index: usize, counts: OutcomeCounts) {
        if self.columns.len() <= index {
            self.columns.resize(index + 1, OutcomeCounts::default());
        }
        self.columns[index] += counts;
        self.refused += counts.denied;
        self.requests += counts.requests();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMITTED: OutcomeCounts = OutcomeCounts {
        no_rule: 0,
        at_once: 1,
        delayed: 0,
        denied: 0,
        shadow_denied: 0,
    };
    const DENIED: OutcomeCounts = OutcomeCounts {
        at_once: 0,
        denied: 1,
        ..ADMITTED
    };

    fn detail(requests: &[(u64, OutcomeCounts)]) -> Detail {
        // Columns of 10 ms, and stretches of 1.2 s.
        let mut detail = Detail::of_window(50_000);
        assert_eq!(detail.width.micros(), 10_000);
        for (millis, counts) in requests {
            let at = Timestamp::from_micros(millis * 1_000).unwrap();
            detail.record(at, *counts);
        }
        detail
    }

    #[test]
    fn the_stretch_with_the_most_refusals_is_kept() {
        assert!(detail(&[]).best().is_none());
        let mut requests = vec![(10, ADMITTED); 50];
        requests.extend([(90_000, DENIED), (90_030, DENIED), (200_000, DENIED)]);
        let detail = detail(&requests);
        let (first, columns) = detail.best().unwrap();
        assert_eq!(first, 9_000);
        let denied: Vec<_> = columns.iter().map(|counts| counts.denied).collect();
        assert_eq!(denied, [1, 0, 0, 1]);
    }

    #[test]
    fn a_short_burst_is_not_cut_in_two() {
        // Across the border between two stretches, at 1.2 s.
        let requests: Vec<_> = (1_000..1_400).step_by(10).map(|at| (at, DENIED)).collect();
        let detail = detail(&requests);
        let (first, columns) = detail.best().unwrap();
        assert_eq!((first, columns.len()), (100, 40));
    }

    #[test]
    fn what_comes_late_is_added_to_the_best() {
        let detail = detail(&[(0, DENIED), (0, DENIED), (90_000, DENIED), (20, DENIED)]);
        let (first, columns) = detail.best().unwrap();
        assert_eq!((first, columns.len()), (0, 3));
    }

    #[test]
    fn columns_are_never_narrower_than_the_narrowest() {
        assert_eq!(Detail::of_window(1).width, ColumnWidth::default());
    }
}
